"""Looking at runs, ending them, and waiting for them."""

import asyncio
import hashlib
import time
from typing import Any

import httpx
import pytest

from contracts import keys, subjects
from contracts.events import Asked
from contracts.ids import new_id
from contracts.inbox import INBOX_MESSAGE, CancelRequested
from contracts.runs import RunRequested, RunStatus
from services.gateway.auth import new_key
from services.gateway.stored_runs.deletions import Deletions
from services.gateway.stored_runs.index import RunIndex
from services.messaging.connection import Bus
from tests.support.gateways import Served, Writer, serving
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until


async def status(served: Served, run: str) -> dict[str, Any]:
    """What the gateway says about a run."""
    answer = await served.http.get(f"/v1/runs/{run}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_run_is_queued_then_running_then_done(served: Served, bus: Bus) -> None:
    """At no time it is unknown, also while both the request and the log are there."""
    asked = await served.http.post("/v1/runs", json={"query": "q" * 300, "agent": "a", "session_id": "s"})
    run = asked.json()["run_id"]
    found = await status(served, run)
    assert (found["status"], found["query"], found["agent"], found["session_id"]) == ("queued", "q" * 200, "a", "s")
    assert abs(found["requested_at"] - time.time() * 1000) < 60_000
    assert found["started_at"] is found["ended_at"] is found["payload"] is None
    writer = Writer(bus, run=run)
    await writer.open(query="q" * 300, agent="a", requested_at=found["requested_at"])
    await writer.log(Asked(turn=1, attempt=1, by="REQUESTS:1", holder="h"))
    assert (await status(served, run))["status"] == "running"
    await bus.api("STREAM.PURGE.REQUESTS", {"filter": subjects.request("default", run)})
    running = await status(served, run)
    assert (running["status"], running["requested_at"]) == ("running", found["requested_at"])
    assert running["started_at"] >= found["requested_at"]
    await writer.done("because")
    ended = await status(served, run)
    assert (ended["status"], ended["reason"], ended["payload"]["raw_answer"]) == ("done", "answer_complete", "because")
    assert ended["ended_at"] >= ended["started_at"]
    assert ended["usage"]["model_calls"] == 0
    assert "type" not in ended["payload"]


async def test_the_ends_of_runs(served: Served, bus: Bus) -> None:
    """Each in one shape; a cancel may be all there is."""
    failed, stopped, never = Writer(bus), Writer(bus), Writer(bus)
    await failed.open()
    await failed.failed()
    await stopped.open()
    await stopped.cancelled()
    await never.cancelled()
    found = await status(served, failed.run)
    assert (found["status"], found["reason"], found["code"], found["payload"]["route"]) == (
        "error",
        "error",
        "model_failed",
        "error",
    )
    for writer in (stopped, never):
        found = await status(served, writer.run)
        assert (found["status"], found["reason"], found["payload"]["raw_answer"]) == ("cancelled", "cancelled", "")
    assert found["started_at"] is None
    assert found["requested_at"] > 0


async def test_a_run_on_a_copy_that_lags_behind_is_not_unknown(
    served: Served, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Direct reads may miss what is new; before 404 the leaders are asked."""

    async def missed(*_: object) -> None:
        return None

    monkeypatch.setattr(served.gateway.runs, "_from_replica", missed)
    run = (await served.http.post("/v1/runs", json={"query": "x"})).json()["run_id"]
    assert (await status(served, run))["status"] == "queued"
    writer = Writer(bus)
    await writer.open()
    await writer.done()
    assert (await status(served, writer.run))["status"] == "done"
    assert (await served.http.get(f"/v1/runs/{new_id()}")).status_code == 404


async def inbox(bus: Bus, run: str, tenant: str = "default") -> CancelRequested | None:
    """The wish that waits for a planner."""
    message = await bus.last(subjects.INBOX, subjects.control(tenant, run, "cancel"))
    found = INBOX_MESSAGE.validate_json(message.data) if message else None
    assert found is None or isinstance(found, CancelRequested)
    return found


async def test_a_cancel_is_stored_for_the_planner(served: Served, bus: Bus, writer: Writer) -> None:
    """For a queued run as for a running one; the reason is optional, and so is the body."""
    await writer.open()
    asked = (await served.http.post("/v1/runs", json={"query": "x"})).json()["run_id"]
    for run, state in ((writer.run, "running"), (asked, "queued")):
        answer = await served.http.post(f"/v1/runs/{run}/cancel", json={"reason": "enough"})
        assert (answer.status_code, answer.json()["status"]) == (202, state)
        wish = await inbox(bus, run)
        assert wish is not None
        assert wish.reason == "enough"
        assert (await served.http.post(f"/v1/runs/{run}/cancel")).status_code == 202


async def test_a_cancel_after_the_end_changes_nothing(served: Served, bus: Bus, writer: Writer) -> None:
    """200 with what the run has become."""
    await writer.open()
    await writer.done("answer")
    answer = await served.http.post(f"/v1/runs/{writer.run}/cancel", json={})
    assert (answer.status_code, answer.json()["status"], answer.json()["payload"]["raw_answer"]) == (
        200,
        "done",
        "answer",
    )
    assert await inbox(bus, writer.run) is None


async def test_a_cancel_with_a_wrong_body_is_refused(served: Served, writer: Writer) -> None:
    """The field is named."""
    await writer.open()
    for body in ({"why": "x"}, {"reason": 1}, {"reason": "x" * 1001}):
        assert (await served.http.post(f"/v1/runs/{writer.run}/cancel", json=body)).status_code == 422


async def asked_for(bus: Bus, query: str) -> str:
    """The run that waits with this question."""

    async def look() -> str | None:
        answer = await bus.api("STREAM.INFO.REQUESTS", {"subjects_filter": subjects.ALL_REQUESTS})
        for subject in answer["state"].get("subjects", {}):
            message = await bus.last(subjects.REQUESTS, subject)
            if message is not None and query.encode() in message.data:
                return subjects.parse(subject).run
        return None

    return str(await wait_until(look, what=f"{query!r} waits"))


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_chat_answers_when_the_run_has_ended_however(served: Served, bus: Bus, end: str) -> None:
    """200 with the payload; unknown fields are ignored."""
    query = f"chat {new_id()}"
    waiting = asyncio.create_task(
        served.http.post("/chat", json={"query": query, "session_id": "s", "history": [1], "stream": False})
    )
    run = await asked_for(bus, query)
    writer = Writer(bus, run=run)
    await writer.open()
    await writer.chunk("be")
    await getattr(writer, end)()
    answer = await waiting
    assert answer.status_code == 200
    assert answer.json()["run_id"] == run
    assert answer.json()["payload"]["raw_answer"] == ("because" if end == "done" else "")
    assert len(served.gateway.streams) == 0


async def test_chat_takes_what_a_run_takes(served: Served, bus: Bus) -> None:
    """Limits bind here too, and a wrong one is named."""
    query = f"bounded {new_id()}"
    waiting = asyncio.create_task(
        served.http.post("/chat", json={"query": query, "limits": {"max_steps": 3}, "tools": ["a"]})
    )
    run = await asked_for(bus, query)
    message = await bus.last(subjects.REQUESTS, subjects.request(subjects.DEFAULT_TENANT, run))
    assert message is not None
    requested = RunRequested.model_validate_json(message.data)
    assert (requested.limits, requested.tools) == ({"max_steps": 3}, ["a"])
    await Writer(bus, run=run).cancelled()
    assert (await waiting).status_code == 200
    wrong = await served.http.post("/chat", json={"query": query, "limits": {"max_step": 3}})
    assert wrong.status_code == 422
    assert "max_step" in wrong.text


async def test_chat_for_a_question_that_was_answered_before(served: Served, bus: Bus) -> None:
    """The same key gives the same run, here too."""
    run = hashlib.sha256(b"default\nanswered").hexdigest()[:32]
    writer = Writer(bus, run=run)
    await writer.cancelled()
    answer = await served.http.post("/chat", json={"query": "x"}, headers={"Idempotency-Key": "answered"})
    assert (answer.status_code, answer.json()["run_id"]) == (200, run)


async def test_who_hangs_up_on_chat_does_not_cancel_the_run(served: Served, bus: Bus) -> None:
    """And leaves nothing behind in the gateway."""
    query = f"hang up {new_id()}"
    waiting = asyncio.create_task(served.http.post("/chat", json={"query": query}))
    run = await asked_for(bus, query)
    await wait_until(lambda: len(served.gateway.streams) == 1, what="the gateway waits for the run")
    waiting.cancel()
    await wait_until(lambda: len(served.gateway.streams) == 0, what="the gateway has noticed")
    assert await inbox(bus, run) is None
    assert (await status(served, run))["status"] == "queued"


async def test_chat_is_told_when_the_gateway_stops(shared_nats: NatsServer, bus: Bus) -> None:
    """503 with the run's id: it goes on."""
    query = f"stop {new_id()}"
    async with serving(shared_nats.url) as served, httpx.AsyncClient() as http:
        waiting = asyncio.create_task(http.post(f"{served.url}/chat", json={"query": query}))
        run = await asked_for(bus, query)
        await wait_until(lambda: len(served.gateway.streams) == 1, what="the gateway waits for the run")
        served.server.should_exit = True
        answer = await waiting
    assert (answer.status_code, answer.json()["run_id"]) == (503, run)


async def index(bus: Bus, tenant: str, count: int) -> list[str]:
    """Fill the index as the planner does; ids in the order of the requests."""
    made = []
    for number in range(count):
        run = new_id()
        state = "running" if number % 3 == 0 else "done"
        entry = RunStatus(run_id=run, status=state, query=f"q{number}", requested_at=1_700_000_000_000 + number)
        subject = f"$KV.{keys.RUNS_BUCKET}.{keys.run_key(tenant, entry.requested_at, run)}"
        await bus.publish(subject, entry.model_dump_json().encode())
        made.append(run)
    return made


async def listed(served: Served, headers: dict[str, str], **query: Any) -> tuple[list[str], int]:
    """All pages: the runs and how many pages they took."""
    found: list[str] = []
    pages = 0
    while True:
        answer = await served.http.get("/v1/runs", params=query, headers=headers)
        assert answer.status_code == 200, answer.text
        found += [run["run_id"] for run in answer.json()["runs"]]
        pages += 1
        if (cursor := answer.json()["next_cursor"]) is None:
            return found, pages
        query["cursor"] = cursor


async def test_runs_are_listed_newest_first_page_by_page(shared_nats: NatsServer, bus: Bus) -> None:
    """Each once, whatever the size of a page; another tenant's not at all."""
    key, line = new_key("lister")
    headers = {"Authorization": f"Bearer {key}"}
    async with serving(shared_nats.url, api_keys=line) as served:
        assert await listed(served, headers) == ([], 1)
        made = await index(bus, "lister", 23)
        await index(bus, "somebody-else", 2)
        for limit, pages in ((1, 23), (7, 4), (23, 1), (100, 1)):
            assert await listed(served, headers, limit=limit) == (made[::-1], pages)
        running = [run for number, run in enumerate(made) if number % 3 == 0]
        assert (await listed(served, headers, status="running", limit=3))[0] == running[::-1]
        assert (await listed(served, headers, status="error"))[0] == []


async def test_a_run_that_comes_while_somebody_turns_pages_moves_nothing(bus: Bus) -> None:
    """A cursor is a place, not a number."""
    gateway_index = RunIndex(bus, Deletions(bus))
    made = await index(bus, "pager", 6)
    first, cursor = await gateway_index.page("pager", 3)
    entry = RunStatus(run_id=new_id(), status="running", requested_at=1_800_000_000_000)
    await bus.publish(
        f"$KV.runs.{keys.run_key('pager', entry.requested_at, entry.run_id)}", entry.model_dump_json().encode()
    )
    second, end = await gateway_index.page("pager", 3, cursor)
    assert [run.run_id for run in (*first, *second)] == made[::-1]
    assert end is None


async def test_what_is_no_entry_is_left_out(bus: Bus) -> None:
    """A marker of a deleted key, and what another version wrote."""
    made = await index(bus, "odd", 2)
    await bus.publish(f"$KV.runs.{keys.run_key('odd', 1, new_id())}", b"{}")
    await bus.publish(f"$KV.runs.{keys.run_key('odd', 2, new_id())}", b"", {"KV-Operation": "DEL"})
    await bus.publish("$KV.runs.odd.not-a-key", b"{}")
    runs, cursor = await RunIndex(bus, Deletions(bus)).page("odd", 10)
    assert ([run.run_id for run in runs], cursor) == (made[::-1], None)
