"""Heavy data through whole runs: it reaches people byte for byte, and neither the model nor any log."""

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from contracts import subjects
from services.runtime.bus import Bus
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_until
from tests.system import evidence
from tests.system.artifact_tools import CANARIES, chart, pdf, rows

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("artifacts"), pytest.mark.timeout(180)]

TOOLS = ROOT / "tests" / "system" / "artifact_tools.py"
DOCS = ROOT / "docs" / "artifacts.md"
KIB = 1024


@dataclass
class Whole:
    """Everything with an artifact store, at DEBUG level, and what a test looks at it with."""

    stack: Stack
    nats: NatsServer
    s3: S3Server
    model: ModelServer
    http: httpx.AsyncClient

    async def chat(self, marker: str, *replies: Say, **query: str) -> tuple[str, dict[str, Any]]:
        """Put a question for which the model has these replies; return the run and its payload."""
        self.model.by_turn(*replies, marker=marker)
        reply = await self.http.post("/chat", json={"query": f"Do it ({marker})."}, params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()["run_id"], reply.json()["payload"]

    def asked(self, marker: str) -> list[str]:
        """Everything that the model was sent for a question."""
        return [json.dumps(seen.body, ensure_ascii=False) for seen in list(self.model.ledger) if marker in seen.text]

    async def bytes_of(self, ref: dict[str, Any]) -> bytes:
        """Fetch an artifact."""
        found = await self.http.get(f"/v1/artifacts/{ref['artifact_id']}")
        assert found.status_code == 200, found.text
        return found.content


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, NatsServer, S3Server, ModelServer]]:
    """One of each, for the tests of this file; who breaks something mends it."""
    folder = tmp_path_factory.mktemp("artifacts")
    nats = NatsServer(folder / "nats")
    nats.start()
    try:
        with ModelServer() as model, S3Server("rclone", folder / "s3") as s3:
            env = {
                "RUNWIRE_MODEL": "openai/scripted",
                "OPENAI_API_BASE": model.url,
                "OPENAI_BASE_URL": model.url,
                "OPENAI_API_KEY": "none",
                "RUNWIRE_LOG_LEVEL": "debug",
                **s3.settings,
            }
            stack = Stack(nats.url, folder / "stack", env, planners=1, tool_runners=1, artifact_stores=1, tools=TOOLS, tool_copies=1)
            stack.add_tools("tools-table", ROOT / "examples" / "python" / "table.py")
            with stack:
                yield stack, nats, s3, model
    finally:
        nats.kill()


@pytest.fixture
async def whole(parts: tuple[Stack, NatsServer, S3Server, ModelServer]) -> AsyncIterator[Whole]:
    """The same, with a client."""
    stack, nats, s3, model = parts
    async with httpx.AsyncClient(base_url=stack.url, timeout=60) as http:

        async def announced() -> bool:
            return {"heavy", "analyze_table"} <= {spec["name"] for spec in (await http.get("/v1/tools")).json()["tools"]}

        await wait_until(announced, timeout=20, what="the tools are there")
        with stack.showing_logs():
            yield Whole(stack, nats, s3, model, http)


async def log_bytes(whole: Whole, run: str) -> int:
    """What a run's facts weigh."""
    bus = await evidence.connect(whole.nats.url)
    try:
        return sum(len(message.data) for message in await (await bus.reader(subjects.RUNS)).messages(subjects.log("default", run)))
    finally:
        await bus.nc.close()


async def events_of(whole: Whole, run: str) -> list[dict[str, Any]]:
    """What is stored of a run."""
    bus: Bus = await evidence.connect(whole.nats.url)
    try:
        return [event for record in await evidence.records(bus, run) for event in record.events]
    finally:
        await bus.nc.close()


async def test_heavy_fields_reach_people_and_nobody_else(whole: Whole) -> None:
    """A chart of 70 KB, a list of 5 MB and a PDF, byte for byte; no request to the model, no log and no stream holds any of it."""
    run, payload = await whole.chat("Q-report", action("report"), answer("Here it is."))
    found = payload["artifacts"]["report"]

    assert payload["raw_answer"] == "Here it is."
    assert found["chart"] == chart()
    assert json.loads(await whole.bytes_of(found["rows"])) == rows()
    assert await whole.bytes_of(found["pdf"]) == pdf()
    assert (found["rows"]["items"], found["pdf"]["mime_type"], found["small"]) == (20_000, "application/pdf", CANARIES["small"])
    assert any("artifact rows of report has" in warning for warning in payload["warnings"])

    asked = whole.asked("Q-report")
    assert len(asked) == 2
    assert "<artifact:list size=20000 items>" in asked[1]
    assert not [name for name, canary in CANARIES.items() if any(canary in text for text in asked)]
    assert await log_bytes(whole, run) < 16 * KIB
    stored = [event for event in await events_of(whole, run) if event["type"] == "artifact_stored"]
    assert {event["field"]: event["artifact_id"] for event in stored} == {
        "chart": (await whole.http.get(f"/v1/runs/{run}?artifacts=refs")).json()["payload"]["artifacts"]["report"]["chart"]["artifact_id"],
        "rows": found["rows"]["artifact_id"],
        "pdf": found["pdf"]["artifact_id"],
    }
    listed = (await whole.http.get(f"/v1/runs/{run}/artifacts")).json()["artifacts"]
    assert {each["ref"]["artifact_id"] for each in listed} == {event["artifact_id"] for event in stored}

    left = [*whole.stack.folder.glob("*.log"), whole.nats.log, *(path for path in whole.nats.store.rglob("*") if path.is_file())]
    assert len(left) > 10
    forms = {name: (canary.encode(), base64.b64encode(canary.encode()[:21])) for name, canary in CANARIES.items() if name != "small"}
    leaks = [(path.name, name) for path in left for name, known in forms.items() if any(form in path.read_bytes() for form in known)]
    assert not leaks
    assert not [path.name for path in whole.stack.folder.glob("*.log") if CANARIES["small"].encode() in path.read_bytes()]


async def test_an_unmarked_text_that_is_too_heavy_is_put_away(whole: Whole) -> None:
    """The model gets its beginning and a reference, people all of it; the run goes on."""
    run, payload = await whole.chat("Q-essay", action("essay", characters=60_000), answer("Long."), artifacts="refs")
    ref = payload["artifacts"]["essay"]["$"]
    text = (await whole.bytes_of(ref)).decode()
    assert (len(text), text[:6]) == (60_000, "0 1 2 ")
    asked = whole.asked("Q-essay")[1]
    assert ref["artifact_id"] in asked
    assert "<artifact:str size=59KB>" in asked
    assert text[:400] in asked
    assert text[:2000] not in asked
    assert await log_bytes(whole, run) < 16 * KIB


async def test_values_come_back_where_a_join_wants_them(whole: Whole) -> None:
    """The log names references; the tool gets the whole results."""
    plan = action(
        "plan",
        steps=[{"node": "plot", "args": {}}, {"node": "essay", "args": {"characters": 50_000}}],
        join={"node": "fingerprint", "inject": {"results": "$results"}},
    )
    run, _ = await whole.chat("Q-join", plan, answer("Joined."))
    joined = [event for event in await events_of(whole, run) if event["type"] == "observed"][-1]
    assert joined["status"] == "succeeded", joined["failure"]
    assert joined["observation"] == {"kinds": ["dict1", "str50000"], "digest": hashlib.sha256(str(chart()).encode()).hexdigest()}
    assert await log_bytes(whole, run) < 16 * KIB


async def test_a_reference_of_another_run_is_refused(whole: Whole) -> None:
    """Whoever can write the shape of a reference cannot read with it."""
    _, payload = await whole.chat("Q-other", action("plot"), answer("Yes."), artifacts="refs")
    stolen = payload["artifacts"]["plot"]["chart"]
    run, _ = await whole.chat("Q-thief", action("fingerprint", results=[stolen]), answer("No."))
    (observed,) = [event for event in await events_of(whole, run) if event["type"] == "observed"]
    assert (observed["status"], observed["failure"]["code"]) == ("failed", "invalid_args")
    assert stolen["artifact_id"] in observed["failure"]["reason"]


async def test_finished_streams_without_a_field_become_artifacts(whole: Whole) -> None:
    """Text is joined, other JSON is the list of its pieces; what never came to its end is none."""
    _, payload = await whole.chat("Q-story", action("narrate"), answer("Told."))
    assert payload["artifacts"]["narrate"] == {"story": "0, 1, 2, ", "points": [[0], [1], [2]]}


async def test_what_many_calls_leave_inline_does_not_weigh_on_the_end(whole: Whole) -> None:
    """300 KB in pieces of 20: at most 128 KiB of them stand in the last record, and all of them are there."""
    run, payload = await whole.chat("Q-many", *(action("many", name=name) for name in "abc"), answer("Fifteen."))
    assert payload["artifacts"]["many"] == {f"{name}{number}.blob": name * 20_000 for name in "abc" for number in range(5)}
    (done,) = [event for event in await events_of(whole, run) if event["type"] == "done"]
    assert len(json.dumps(done)) < 160 * KIB
    assert not [warning for warning in payload["warnings"] if "artifact" in warning]


async def test_what_is_too_large_fails_its_call_and_no_run(whole: Whole) -> None:
    """12 MB pass; what is above 50 MB is told to the model."""
    run, payload = await whole.chat("Q-heavy", action("heavy", megabytes=12), action("heavy", megabytes=53), answer("One of two."))
    assert await whole.bytes_of(payload["artifacts"]["heavy"]["blob"]) == b"\x01" * (12 << 20)
    first, second = (event for event in await events_of(whole, run) if event["type"] == "observed")
    assert (first["status"], second["status"], second["failure"]["code"]) == ("succeeded", "failed", "result_too_large")
    assert "result_too_large" in whole.asked("Q-heavy")[2]


async def test_an_s3_server_that_is_away_is_waited_for(whole: Whole) -> None:
    """Answers in text still come; the artifact's call waits, and then succeeds."""
    whole.s3.kill()
    try:
        _, text = await whole.chat("Q-text", action("essay", characters=100), answer("Words."))
        assert text["raw_answer"] == "Words."
        whole.model.by_turn(action("plot"), answer("Plotted."), marker="Q-away")
        started = await whole.http.post("/v1/runs", json={"query": "Q-away"})
        run = started.json()["run_id"]
        await wait_until(lambda: whole.asked("Q-away"), what="the tool is about to be called")
        assert (await whole.http.get(f"/v1/runs/{run}")).json()["status"] == "running"
    finally:
        whole.s3.start()

    async def ended() -> dict[str, Any] | None:
        status = (await whole.http.get(f"/v1/runs/{run}")).json()
        return status if status["status"] != "running" else None

    status = await wait_until(ended, timeout=30, what="the run has ended")
    assert (status["status"], status["payload"]["artifacts"]["plot"]["chart"]) == ("done", chart())


async def test_the_snippet_of_the_docs_finds_a_chart(whole: Whole) -> None:
    """What docs/artifacts.md hands to ECharts is an option with series."""
    tool, field = re.findall(r"setOption\(payload\.artifacts\.(\w+)\.(\w+)\)", DOCS.read_text(encoding="utf-8"))[0]
    question = "Which region grew most in sales.csv?"
    _, payload = await whole.chat("Q-docs", action(tool, question=question), answer("See the chart."))
    option = payload["artifacts"][tool][field]
    assert option["series"]
    assert all(series["type"] for series in option["series"])
    assert {"xAxis", "yAxis"} <= option.keys()
