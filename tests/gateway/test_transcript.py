"""HTTP answers and event streams of two runs, byte for byte, through a real planner and tool runner.

`transcript.snapshot.txt` is the record. Ids are numbered in the order of their first appearance, times are zero, and
chunks are joined, since their boundaries depend on the machine. After an intended change, write it again:
`WRITE_SNAPSHOTS=1 pytest -n 0 tests/gateway/test_transcript.py`, and read the difference.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import httpx

from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from runwire.client.event_stream import SseDecoder
from services.gateway.protocols.events.stream import Cursor
from tests.support.buses import provisioned
from tests.support.gateways import serving
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Handler, planning, tools_at_work
from tests.support.s3_servers import S3Server
from tests.support.stores import serving as storing

RECORD = Path(__file__).parent / "transcript.snapshot.txt"
TIMES = re.compile(
    r'"(at|requested_at|started_at|ended_at|created_at|expires_at|deadline_at|retry_at|'
    r'latency_ms|duration_ms|ttft_ms|wait_ms)":[0-9.]+'
)
IDS = re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{32}\b|\b[0-9a-f]{24}\b|\b(?:REQUESTS|INBOX):[0-9]+\b")
CURSORS = re.compile(r"^id: [0-9]+-[0-9]+$", re.MULTILINE)
CHART_SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "rows": {"type": "array", "artifact": True}},
}


async def draw(_: dict[str, Any]) -> Any:
    """A title for the model, and rows of 60 KB for people."""
    return {"title": "Sales", "rows": [f"{number:05}" * 20 for number in range(600)]}


async def fail(_: dict[str, Any]) -> Any:
    return Fault(code="tool_error", reason="out of order")


TOOLS: dict[str, tuple[ToolSpec, Handler]] = {
    "draw": (
        ToolSpec(name="draw", description="Draw a chart.", output_schema=CHART_SCHEMA, idempotent=True),
        draw,
    ),
    "fail": (ToolSpec(name="fail", description="Always fails."), fail),
}


def streamed(body: bytes) -> str:
    """An event stream as text, with the chunks of one attempt joined; checks that its cursors only grow."""
    frames: list[str] = []
    chunk: dict[str, Any] = {}
    for frame in body.decode().split("\n\n"):
        kind, _, data = frame.partition("\ndata: ")
        if kind == "event: chunk":
            piece = json.loads(data.partition("\n")[0])
            chunk = {**piece, "seq": 0, "offset": 0, "text": chunk.get("text", "")[: piece["offset"]] + piece["text"]}
            continue
        if chunk:
            frames.append(f"event: chunk\ndata: {json.dumps(chunk, separators=(',', ':'))}\nid: <cursor>")
            chunk = {}
        frames.append(CURSORS.sub("id: <cursor>", frame))
    cursors = [Cursor.parse(each.id) for each in SseDecoder().feed(body) if each.id]
    assert sorted(cursors, key=lambda each: (each.log, each.stream)) == cursors
    assert sorted(cursors, key=lambda each: (each.stream, each.log)) == cursors
    assert len(set(cursors)) == len(cursors)
    return "\n\n".join(frames)


def shown(name: str, response: httpx.Response) -> str:
    """An answer as text: its status, its headers, its body."""
    left_out = {"date", "server", "content-length", "transfer-encoding", "connection"}
    headers = sorted(f"{key}: {value}" for key, value in response.headers.items() if key not in left_out)
    body = response.content
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    text = streamed(body) if is_stream else body.decode()
    return "\n".join([f"== {name}: {response.status_code}", *headers, text, ""])


def normalised(text: str) -> str:
    """The transcript with ids numbered, times zero, and long runs of digits cut."""
    known: dict[str, str] = {}
    text = IDS.sub(lambda found: known.setdefault(found[0], f"<id {len(known) + 1}>"), text)
    text = TIMES.sub(r'"\1":0', text)
    text = re.sub(r'"last_stream_seq":(\d+|null)', '"last_stream_seq":0', text)
    return re.sub(r'("\d{100}",?){3,}', '"… rows …"', text)


async def answers_of_runs(http: httpx.AsyncClient) -> list[str]:
    found = []
    for query in ("Q-one", "Q-two"):
        created = await http.post("/v1/runs", json={"query": query, "tool_context": {"token": "s3cr3t"}})
        url = created.headers["location"]
        events = await http.get(f"{url}/events")
        last = list(SseDecoder().feed(events.content))[-1].last_id
        answers = {
            "create": created,
            "events": events,
            "events as references": await http.get(f"{url}/events?artifacts=refs"),
            "events after the end": await http.get(f"{url}/events", headers={"Last-Event-ID": last}),
            "status": await http.get(url),
            "status as references": await http.get(f"{url}?artifacts=refs"),
            "artifacts": await http.get(f"{url}/artifacts"),
            "cancel": await http.post(f"{url}/cancel"),
            "top up": await http.post(f"{url}/top-up", json={"limits": {"max_steps": 1}}),
            "delete": await http.delete(url),
            "status of a deleted run": await http.get(url),
        }
        found += [shown(f"{query} {name}", response) for name, response in answers.items()]
    return found


async def other_answers(http: httpx.AsyncClient) -> list[str]:
    """What the gateway says of tools and of mistakes."""
    return [
        shown("tools", await http.get("/v1/tools")),
        shown("a wrong body", await http.post("/v1/runs", json={"query": 1, "limits": {"max_step": 1}})),
        shown("a wrong query", await http.get("/v1/runs?limt=1&limit=0")),
        shown("a wrong limit", await http.get("/v1/runs?limit=0")),
        shown("a wrong cursor", await http.get("/v1/runs?cursor=x")),
        shown("a wrong method", await http.put("/v1/runs")),
        shown("a wrong address", await http.get("/v1/nothing")),
    ]


async def test_clients_read_what_was_recorded(
    own_nats_server: NatsServer, rclone: S3Server, provider: ModelServer
) -> None:
    """A run with a tool, an artifact, a failed call and a streamed answer; one that the model's provider refuses."""
    url = own_nats_server.url
    provider.say(action("draw"), action("fail"), answer("Sales grew in May, see the chart."), marker="Q-one")
    provider.say(Say(status=400, error={"message": "no", "type": "invalid_request_error"}), marker="Q-two")
    async with (
        provisioned(url),
        storing(rclone, url),
        serving(url, heartbeat_s=600) as gateway,
        planning(url, provider) as planner,
        tools_at_work(planner, url, TOOLS),
    ):
        found = normalised("\n".join([*await answers_of_runs(gateway.http), *await other_answers(gateway.http)]))
    assert "s3cr3t" not in found
    if os.environ.get("WRITE_SNAPSHOTS"):
        RECORD.write_text(found, encoding="utf-8")
    assert found == RECORD.read_text(encoding="utf-8")
