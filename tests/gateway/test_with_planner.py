"""The gateway, the client and a real planner with the embedded model: prompts and sessions."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from runwire.client import Client
from services.messaging.connection import Bus
from services.runtime.health import VERSION
from tests.support.gateways import Served, planner_process
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server of this file: on the other one a planner would first do what the tests before have asked for."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="module")
def planner(shared_nats: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A planner that may still be starting: requests wait for it."""
    with planner_process(shared_nats.url, tmp_path_factory.mktemp("planner")):
        yield


@pytest.mark.usefixtures("planner")
async def test_a_prompt_is_shown_as_it_was_sent(served: Served) -> None:
    """By the planner, through the gateway; lists show the end of the run soon after it."""
    async with Client(served.url) as client:
        run = (await client.chat("What can you do?")).run_id
        prompt = (await served.http.get(f"/v1/runs/{run}/prompt", params={"turn": 1, "attempt": 1})).json()
        assert "What can you do?" in str(prompt["messages"])
        assert prompt["asked_by"] == prompt["rendered_by"] == VERSION
        other = await served.http.get(f"/v1/runs/{run}/prompt", params={"turn": 99})
        assert (other.status_code, "`asked`" in other.json()["detail"]) == (404, True)

        async def listed_as_ended() -> bool:
            # The planner enters the end of a run in the index after the run's own log.
            return (run, "done") in [(status.run_id, status.status) async for status in client.list_runs()]

        await wait_until(listed_as_ended, what="the index has the end of the run")


async def shown(served: Served, session_id: str) -> dict[str, Any]:
    """What the gateway says about a session; empty once it is not found."""
    answer = await served.http.get(f"/v1/sessions/{quote(session_id, safe='')}")
    found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    return found


@pytest.mark.usefixtures("planner", "store")
async def test_a_session_goes_on_until_it_is_deleted(served: Served, bus: Bus) -> None:
    """Two questions, a context between them; what was said in a deleted run is gone; the same id starts anew later."""
    name = f"desk/{new_id()}"
    path = f"/v1/sessions/{quote(name, safe='')}"
    for query in ("What can you do?", "And what else?"):
        answer = (await served.http.post("/chat", json={"query": query, "session_id": name})).json()
        assert answer["session_id"] == name
        assert answer["payload"]["raw_answer"]
        assert (await served.http.put(f"{path}/context", json={"values": {query: "asked"}})).status_code == 204

    async def both_ended() -> bool:
        found = await shown(served, name)
        return [run["status"] for run in found["recent_runs"]] == ["done", "done"] and found["current_run"] is None

    await wait_until(both_ended, what="the session knows that both runs have ended")
    assert set((await shown(served, name))["context"]) == {"What can you do?", "And what else?"}

    first = (await shown(served, name))["recent_runs"][-1]["run_id"]
    assert (await served.http.delete(f"/v1/runs/{first}")).status_code == 202
    log = subjects.session_log("default", keys.session_key(name))

    async def is_forgotten() -> bool:
        stored = await (await bus.reader("SESSIONS")).messages(log)
        said = b"".join(message.data for message in stored)
        assert b"And what else?" in said
        return b'"question":"What can you do?"' not in said

    await wait_until(is_forgotten, what="the session has forgotten the deleted run")
    await served.http.post("/chat", json={"query": "A third?", "session_id": name})
    second = (await shown(served, name))["recent_runs"][-1]["run_id"]
    assert (await served.http.delete(path)).status_code == 202

    async def is_gone() -> bool:
        return await shown(served, name) == {}

    await wait_until(is_gone, what="the session is deleted")
    # Its runs too, although the beginning of its log was gone.
    assert (await served.http.get(f"/v1/runs/{second}")).status_code == 404
    await served.http.post("/chat", json={"query": "Anew?", "session_id": name})
    found = await shown(served, name)
    assert (found["runs"], found["context"]) == (1, {})


@pytest.mark.usefixtures("planner")
async def test_the_context_of_a_run_without_a_session_keeps_its_turn(served: Served) -> None:
    """The session begins with that run, whatever continues it first."""
    answer = (await served.http.post("/chat", json={"query": "What can you do?"})).json()
    name = answer["session_id"]
    values = {"city": "Bern", "large": 2**70, "deep": json.loads("[" * 150 + "]" * 150), "": "\x00"}
    assert (await served.http.put(f"/v1/sessions/{name}/context", json={"values": values})).status_code == 204
    found = await shown(served, name)
    assert [run["run_id"] for run in found["recent_runs"]] == [answer["run_id"]]
    assert (found["runs"], found["context"]) == (1, values)
    again = await served.http.post("/chat", json={"query": "What can you do?", "session_id": name})
    assert again.json()["payload"]["route"] is None
