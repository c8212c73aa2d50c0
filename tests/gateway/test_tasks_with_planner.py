"""Background tasks over HTTP, with a real planner and tool runner: a payment that a task wants to make."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from tests.support import stores
from tests.support.gateways import Served, serving
from tests.support.model_server import ModelServer, Say, Seen, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import planning, tools_at_work
from tests.support.s3_servers import S3Server
from tests.support.waiting import wait_until

SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
PAY = ToolSpec(name="pay", description="Pay a sum.", input_schema=SUM, requires_approval=True)
DRAWN = {
    "type": "object",
    "properties": {
        "chart": {"type": "object", "artifact": True},
        "from": {
            "type": "object",
            "produces_sources": True,
            "properties": {"title": {"type": "string", "source_field": "title"}},
        },
    },
}
DRAW = ToolSpec(name="draw", description="Draw a chart.", input_schema={"type": "object"}, output_schema=DRAWN)
PAYING, REPORT = "pay 9", "Background work has ended"
WHOLE = "Pay the bill and wait"
"""Where a request has several of them, the longest counts."""


async def draw(_: dict[str, Any]) -> Any:
    """A chart, and where its figures come from."""
    return {"chart": {"bars": [1, 2]}, "from": {"title": "A book"}}


async def pay(args: dict[str, Any]) -> Any:
    return {"paid": args["sum"]}


def task(query: str, **more: Any) -> Say:
    """A reply that spawns a task of a group whose results wait for a person."""
    return action(
        "task", **{"mode": "subagent", "query": query, "group": "monday", "merge_strategy": "HUMAN_GATED"} | more
    )


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    """A scripted provider: a task that wants to pay."""
    with ModelServer() as running:
        running.by_turn(task(PAYING, retain_turn=True), answer("It is paid."), marker=WHOLE)
        running.by_turn(action("pay", sum=9), answer("Paid."), marker=PAYING)
        yield running


@pytest.fixture
async def served(own_nats_server: NatsServer, provider: ModelServer, tmp_path: Path) -> AsyncIterator[Served]:
    url, agents = own_nats_server.url, {"default": {"tasks": {"spawn_requires_confirmation": False}}}
    async with (
        serving(url) as gateway,
        planning(url, provider, agents=agents, folder=tmp_path) as planner,
        tools_at_work(planner, url, {"pay": (PAY, pay), "draw": (DRAW, draw)}),
    ):
        yield gateway


async def test_whoever_chats_is_told_what_the_tasks_wait_for(served: Served) -> None:
    """The run that waits shows the pause of its task, then the held results; both are decided under its id."""
    http = served.http
    chatting = await http.post("/chat", json={"query": WHOLE})
    assert chatting.status_code == 202
    run, (asked,) = chatting.json()["run_id"], chatting.json()["pauses"]
    assert (asked["tool"], asked["arguments"]) == ("pay", {"sum": 9})
    assert asked["run_id"] != run
    assert await wait_until(lambda: _waiting(served, 2), what="both are listed") == {run, asked["run_id"]}
    assert await _decided(served, run, asked, "approve") == [200, 200]

    async def held() -> dict[str, Any]:
        shown = (await http.get(f"/v1/runs/{run}")).json()["pauses"]
        return shown[0] if shown and shown[0]["run_id"] == run else {}

    results = await wait_until(held, what="the results wait for a decision")
    assert (results["tool"], results["arguments"]) == ("tasks.apply", {"group_id": asked["run_id"]})
    assert await wait_until(lambda: _waiting(served, 1), what="it is listed") == {run}
    changed = {"pause_id": results["pause_id"], "token": "other", "decision": "approve"}
    assert (await http.post(f"/v1/runs/{run}/resume", json=changed)).json()["code"] == "pause_changed"
    assert await _decided(served, run, results, "approve") == [200, 200]

    async def ended() -> dict[str, Any]:
        status: dict[str, Any] = (await http.get(f"/v1/runs/{run}")).json()
        return status if status["status"] == "done" else {}

    status = await wait_until(ended, what="the run ends")
    assert (status["payload"]["raw_answer"], status["pauses"]) == ("It is paid.", [])
    assert (await http.get(f"/v1/groups/{asked['run_id']}")).json()["decision"] == "applied"
    assert await wait_until(lambda: _waiting(served, 0), what="nothing is listed")


async def _waiting(served: Served, count: int) -> set[str] | bool:
    """The runs that wait, if it is so many of them."""
    listed = [
        {run["run_id"] for run in (await served.http.get("/v1/runs", params=params)).json()["runs"]}
        for params in ({"waits": "true"}, {"status": "waiting"})
    ]
    return listed[0] == listed[1] and len(listed[0]) == count and (listed[0] or True)


async def _decided(served: Served, run: str, pause: dict[str, Any], decision: str) -> list[int]:
    """Decide twice with one idempotency key, and return the status codes."""
    body = {"pause_id": pause["pause_id"], "token": pause["token"], "decision": decision}
    path, keyed = f"/v1/runs/{run}/resume", {"Idempotency-Key": f"once-{pause['pause_id']}"}
    return [(await served.http.post(path, json=body, headers=keyed)).status_code for _ in range(2)]


async def test_what_a_task_makes_reaches_the_run_that_reads_it(
    served: Served, provider: ModelServer, own_nats_server: NatsServer, tmp_path: Path
) -> None:
    """Its artifacts, its sources, and its whole answer: the run that waits has them, or else the report."""
    http, long = served.http, " ".join(f"word{number}" for number in range(6_000))
    shown: list[str] = []

    def choose(request: Seen) -> Say:
        if REPORT in request.text:
            return answer("All is drawn.")
        if "Please" not in request.text:  # The task.
            return answer(long) if request.turns else action("draw")
        if not request.turns:
            return task("some bars", merge_strategy="APPEND", retain_turn="Please wait" in request.text)
        shown.append(request.text)
        more = re.search(r"read_artifact\W+args\W+artifact_id\W+([0-9a-f]{32})", request.text)
        if more is not None and len(shown) == 1:
            return action("read_artifact", artifact_id=more[1], offset=20_000)
        return answer("Drawn.")

    provider.choose = choose
    with S3Server("rclone", tmp_path / "s3") as s3:
        async with stores.serving(s3, own_nats_server.url):
            waited = (await http.post("/chat", json={"query": "Please wait"})).json()["payload"]
            session = (await http.post("/chat", json={"query": "Please begin"})).json()["session_id"]

            async def reported() -> dict[str, Any]:
                runs = (await http.get("/v1/runs", params={"session_id": session})).json()["runs"]
                ended = [each["run_id"] for each in runs if each["cause"] == "report" and each["status"] == "done"]
                return (await http.get(f"/v1/runs/{ended[0]}")).json() if ended else {}

            report = (await wait_until(reported, what="the report"))["payload"]
    assert "<artifact:dict" in shown[0]
    assert "word5999" in shown[0]
    assert "word2500" not in shown[0]
    assert "word2500" in shown[1]
    for payload in (waited, report):
        assert payload["artifacts"] == {"draw": {"chart": {"bars": [1, 2]}}}
        assert payload["sources"][0]["title"] == "A book"
    (found,) = (await http.get("/v1/tasks", params={"session_id": session})).json()["tasks"]
    assert (await http.get(f"/v1/tasks/{found['task_id']}")).json()["result"] == long
