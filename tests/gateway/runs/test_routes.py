"""Looking at runs, ending them, and waiting for them."""

import time
from typing import Any

import pytest

from contracts.runs.events import Asked, InputAdded, Queued, Resumed
from contracts.runs.inbox import INBOX_MESSAGE, CancelRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.gateways import Served, Writer, paused


async def status(served: Served, run: str) -> dict[str, Any]:
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
    assert (found["status"], found["reason"], found["code"]) == ("error", "error", "model_failed")
    assert found["payload"]["route"] == "error"
    for writer in (stopped, never):
        found = await status(served, writer.run)
        assert (found["status"], found["reason"], found["payload"]["raw_answer"]) == ("cancelled", "cancelled", "")
    assert found["started_at"] is None
    assert found["requested_at"] > 0


async def test_a_run_is_found_when_a_replica_lags_behind(
    served: Served, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Direct reads may miss what is new; before 404 the leaders are asked."""

    async def missed(*_: object) -> None:
        return None

    monkeypatch.setattr(served.parts.runs, "_from_replica", missed)
    run = (await served.http.post("/v1/runs", json={"query": "x"})).json()["run_id"]
    assert (await status(served, run))["status"] == "queued"
    writer = Writer(bus)
    await writer.open()
    await writer.done()
    assert (await status(served, writer.run))["status"] == "done"
    assert (await served.http.get(f"/v1/runs/{new_id()}")).status_code == 404


async def inbox(bus: Bus, run: str, tenant: str = "default") -> CancelRequested | None:
    message = await bus.last(subjects.INBOX, subjects.control(tenant, run, "cancel"))
    found = INBOX_MESSAGE.validate_json(message.data) if message else None
    assert found is None or isinstance(found, CancelRequested)
    return found


async def test_a_cancel_is_stored_for_the_planner(served: Served, bus: Bus, writer: Writer) -> None:
    """For a queued run as for a running one; the reason is optional, and so is the body. A wrong one is refused."""
    await writer.open()
    asked = (await served.http.post("/v1/runs", json={"query": "x"})).json()["run_id"]
    for run, state in ((writer.run, "running"), (asked, "queued")):
        answer = await served.http.post(f"/v1/runs/{run}/cancel", json={"reason": "enough"})
        assert (answer.status_code, answer.json()["status"]) == (202, state)
        cancel = await inbox(bus, run)
        assert cancel is not None
        assert cancel.reason == "enough"
        assert (await served.http.post(f"/v1/runs/{run}/cancel")).status_code == 202
    for body in ({"why": "x"}, {"reason": 1}, {"reason": "x" * 1001}):
        assert (await served.http.post(f"/v1/runs/{writer.run}/cancel", json=body)).status_code == 422


async def test_a_cancel_after_the_end_changes_nothing(served: Served, bus: Bus, writer: Writer) -> None:
    """200 with what the run has become."""
    await writer.open()
    await writer.done("answer")
    answer = await served.http.post(f"/v1/runs/{writer.run}/cancel", json={})
    assert (answer.status_code, answer.json()["status"]) == (200, "done")
    assert answer.json()["payload"]["raw_answer"] == "answer"
    assert await inbox(bus, writer.run) is None


async def test_the_pauses_of_a_run_are_shown_as_long_as_they_are_open(served: Served, writer: Writer) -> None:
    """Each for itself; none after the end."""
    await writer.open()
    await writer.log(paused("1-1", 1), paused("1-2", 2, title="Pay?"))
    assert [pause["pause_id"] for pause in (await status(served, writer.run))["pauses"]] == [f"{1:032x}", f"{2:032x}"]
    await writer.log(Resumed(pause_id=f"{1:032x}", decision="approve"))
    (left,) = (await status(served, writer.run))["pauses"]
    assert (left["title"], left["token"]) == ("Pay?", f"{2:032x}.1.{'0' * 32}")
    await writer.cancelled()
    assert (await status(served, writer.run))["pauses"] == []


async def test_a_run_that_waits_for_its_turn_is_queued(served: Served, writer: Writer) -> None:
    """With inputs or without, until the record that begins it."""
    request = writer.started(query="next", session_id="s", user_id="ann").request
    await writer.log(Queued(request=request, queue_until=2_000_000_000_000))
    for _ in range(2):
        found = await status(served, writer.run)
        assert (found["status"], found["query"], found["session_id"]) == ("queued", "next", "s")
        assert (found["user_id"], found["started_at"]) == ("ann", None)
        await writer.log(InputAdded(id=new_id(), text="and more"))
    await writer.log(writer.started(query="next", session_id="s"))
    found = await status(served, writer.run)
    assert (found["status"], found["query"]) == ("running", "next")
    assert found["started_at"] >= found["requested_at"]


async def test_a_request_is_answered_alike_by_both_ways(served: Served, writer: Writer) -> None:
    """Past FastAPI's routing, and through it for its query: the same status, headers and body."""
    await writer.open()
    await writer.done()
    key, events = {"Idempotency-Key": new_id()}, {"Accept": "text/event-stream"}
    asked, stream = ("POST", "/v1/runs"), ("GET", f"/v1/runs/{writer.run}/events")
    last = (await served.http.request(*stream)).text.rpartition("id: ")[2].strip()
    cases: list[tuple[tuple[str, str], dict[str, str], bytes]] = [
        (asked, key, b'{"query":"q"}'),
        (asked, key, b'{"query":"another"}'),
        (asked, key | events, b'{"query":"another"}'),
        (asked, {"Idempotency-Key": "\x7f"}, b'{"query":"q"}'),
        (asked, {}, b"["),
        (asked, {}, b'{"query":"q","unknown":1}'),
        (asked, {"Content-Encoding": "br"}, b"{}"),
        (asked, {"Host": "example.org"}, b'{"query":"q"}'),
        (asked, {"Origin": "https://example.org"}, b'{"query":"q"}'),
        (asked, {"Last-Event-ID": "x"}, b'{"query":"q"}'),
        (asked, events | {"Last-Event-ID": last}, b'{"query":"q"}'),
        (stream, {}, b""),
        (stream, {"Last-Event-ID": ""}, b""),
        (stream, {"Last-Event-ID": last}, b""),
        (stream, {"Last-Event-ID": "0-7"}, b""),
        (("GET", f"/v1/runs/{new_id()}/events"), {}, b""),
        (("PUT", stream[1]), {}, b""),
    ]
    statuses = set()
    for (method, path), headers, body in cases:
        straight, routed = [
            await served.http.request(method, path + query, headers=headers, content=body)
            for query in ("", "?artifacts=values")
        ]
        assert (straight.status_code, straight.content) == (routed.status_code, routed.content), (path, headers, body)
        assert {**straight.headers, "date": ""} == {**routed.headers, "date": ""}
        statuses.add(straight.status_code)
    assert statuses == {200, 202, 204, 400, 403, 404, 405, 409, 415, 422}
