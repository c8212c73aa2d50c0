"""Sessions over HTTP: reading, setting the context, deleting, and whether a request may have the turn."""

import asyncio
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from contracts.runs.events import PlannedCall, Step
from contracts.runs.requests import RunStatus
from contracts.sessions.records import (
    SESSION_MESSAGE,
    ContextSet,
    RunQueued,
    RunWaits,
    SessionContextRequested,
    SessionDeleted,
    SessionDeleting,
    SessionDeletionRequested,
    Summarised,
)
from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from services.gateway.sessions import reader
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from tests.support.gateways import Served, Writer, paused, serving_as
from tests.support.nats_server import NatsServer
from tests.support.session_writer import SessionWriter
from tests.support.waiting import wait_until


def path_of(session_id: str, rest: str = "") -> str:
    return f"/v1/sessions/{quote(session_id, safe='')}{rest}"


@pytest.fixture
async def session(bus: Bus) -> SessionWriter:
    writer = SessionWriter(bus, f"s {new_id()}")
    await writer.start()
    return writer


async def an_ended_run(session: SessionWriter, requested_at: int) -> str:
    """A run that had the turn, and stands in the index."""
    run = new_id()
    await session.begin(run, requested_at)
    await session.end(run)
    entry = RunStatus(run_id=run, status="done", requested_at=requested_at, session_id=session.session_id)
    await Bucket(session.bus, keys.RUNS_BUCKET).put(keys.run_key(session.tenant, requested_at, run), entry)
    return run


async def messages_to(session: SessionWriter) -> list[Any]:
    """What waits for the planner."""
    inbox = await session.bus.reader("INBOX")
    stored = await inbox.read(f"session_inbox.{session.tenant}.{session.key}.*")
    return [SESSION_MESSAGE.validate_json(data) for _, data in stored]


async def test_a_session_is_shown_with_all_its_parts(served: Served, session: SessionWriter) -> None:
    """Its runs, newest first; those that wait; the pauses as the run's own log has them."""
    first, second = await an_ended_run(session, 1_700_000_000_000), await an_ended_run(session, 1_700_000_000_001)
    await session.log(Summarised(through=first, run=new_id(), text="They asked why."))
    await session.log(ContextSet(values={"city": "Bern"}))
    await session.checkpoint()
    open_, queued = Writer(session.bus), Writer(session.bus)
    await open_.open(session_id=session.session_id, query="now")
    await session.begin(open_.run)
    await session.log(RunQueued(run=queued.run, requested_at=1))
    await open_.log(paused("1-1", 7, arguments={"sum": 9}))
    pause = {"pause_id": f"{7:032x}", "run_id": open_.run, "reason": "approval", "source": "policy", "expires_at": 1}
    await session.log(RunWaits.model_validate({"run": open_.run, "seq": 2, "waits": True, "pauses": [pause]}))
    found = (await served.http.get(path_of(session.session_id))).json()
    assert (found["session_id"], found["key"]) == (session.session_id, session.key)
    assert [run["run_id"] for run in found["recent_runs"]] == [open_.run, second, first]
    assert [run["status"] for run in found["recent_runs"]] == ["running", "done", "done"]
    assert (found["current_run"], found["queue"], found["queued_runs"]) == (open_.run, [queued.run], 1)
    assert (found["summary"], found["context"], found["runs"]) == ("They asked why.", {"city": "Bern"}, 4)
    assert [(pause["pause_id"], pause["arguments"]) for pause in found["pauses"]] == [(f"{7:032x}", {"sum": 9})]
    assert found["open_pauses"] == 1


async def test_an_id_may_be_any_text(served: Served, bus: Bus) -> None:
    """In an address it is percent-encoded, slashes too; clients take two texts out of one."""
    for name in ("a/b", "a/b/events", "ü ä?#", "%2F", "..", "x/context", "events", "a%20b", "\t"):
        await SessionWriter(bus, name).start()
        raw = quote(name, safe="").replace(".", "%2E").encode()
        url = httpx.URL(f"{served.url}/").copy_with(raw_path=b"/v1/sessions/" + raw)
        assert (await served.http.get(url)).json()["session_id"] == name
        assert (await served.http.get(url.copy_with(raw_path=url.raw_path + b"/none"))).status_code == 404
    for taken_out in (".", ".."):
        answer = await served.http.post("/v1/runs", json={"query": "?", "session_id": taken_out})
        assert (answer.status_code, [each["field"] for each in answer.json()["errors"]]) == (422, ["session_id"])


async def test_a_run_without_a_session_has_one_of_its_own(served: Served, writer: Writer) -> None:
    """Under the id that its acceptance named, and under no other."""
    await writer.open(user_id="ann")
    await writer.done("hello")
    found = (await served.http.get(path_of(f"run-{writer.run}"))).json()
    assert [run["run_id"] for run in found["recent_runs"]] == [writer.run]
    assert (found["runs"], found["current_run"], found["user_id"]) == (1, None, "ann")
    assert "hello" not in str(found)
    in_another = Writer(writer.bus)
    await in_another.open(session_id="s")
    for name in (f"run-{in_another.run}", f"run-{new_id()}", "run-x", "x" * 201):
        assert (await served.http.get(path_of(name))).status_code == 404


async def test_a_deleted_session_is_as_unknown_as_none(served: Served, session: SessionWriter) -> None:
    """The same bytes from every address, until a run begins it anew."""
    await session.log(SessionDeleted())
    for method, rest in (("GET", ""), ("DELETE", ""), ("GET", "/events"), ("PUT", "/context")):
        body: dict[str, Any] | None = {"values": {"a": 1}} if method == "PUT" else None
        deleted, missing = [
            await served.http.request(method, path_of(session_id, rest), json=body)
            for session_id in (session.session_id, f"s {new_id()}")
        ]
        assert (deleted.status_code, deleted.content) == (404, missing.content)
    anew = await served.http.post("/v1/runs", json={"query": "x", "session_id": session.session_id})
    assert anew.status_code == 202


async def test_the_context_counts_once_it_is_set(served: Served, session: SessionWriter) -> None:
    """204 when the session's log has it."""
    setting = asyncio.create_task(
        served.http.put(path_of(session.session_id, "/context"), json={"values": {"city": "Bern", "old": None}})
    )
    (message,) = await wait_until(lambda: messages_to(session), what="the message is stored")
    assert isinstance(message, SessionContextRequested)
    assert (message.values, message.session_id) == ({"city": "Bern", "old": None}, session.session_id)
    sequence = (await (await session.bus.reader("INBOX")).read(f"session_inbox.default.{session.key}.*"))[-1][0]
    await session.log(ContextSet(values={"city": "Rome"}), by=f"INBOX:{sequence + 1}")
    assert not setting.done()
    await session.log(ContextSet(values=message.values), by=f"INBOX:{sequence}")
    assert (await setting).status_code == 204


async def test_a_context_is_bounded(served: Served, session: SessionWriter) -> None:
    """All of it together."""
    await session.log(ContextSet(values={"a": "x" * 20_000}))
    path = path_of(session.session_id, "/context")
    wrong: list[dict[str, Any]] = [{"values": {"b": "x" * 20_000}}, {"values": {}}, {"context": {}}, {}]
    for body in wrong:
        assert (await served.http.put(path, json=body)).status_code == 422
    assert await messages_to(session) == []


async def test_a_session_is_deleted_by_its_planner(served: Served, session: SessionWriter) -> None:
    """Each request counts, since the session may have begun anew."""
    for _ in range(2):
        assert (await served.http.delete(path_of(session.session_id))).status_code == 202
    assert [type(each) for each in await messages_to(session)] == [SessionDeletionRequested] * 2
    await session.log(SessionDeleting())
    busy = await served.http.post("/v1/runs", json={"query": "x", "session_id": session.session_id})
    assert (busy.status_code, busy.json()["code"]) == (409, "session_deleting")
    setting = await served.http.put(path_of(session.session_id, "/context"), json={"values": {"a": 1}})
    assert (setting.status_code, setting.json()["code"]) == (409, "session_deleting")


async def test_a_session_whose_log_is_gone_is_not_remembered(
    served: Served, session: SessionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last record of a deleted session is kept for a day only."""
    assert (await served.http.get(path_of(session.session_id))).status_code == 200
    log = subjects.session_log(session.tenant, session.key)
    await session.bus.api(f"STREAM.PURGE.{subjects.SESSIONS}", {"filter": log})
    monkeypatch.setattr(reader, "MAX_REMEMBERED_S", 0)
    assert (await served.http.get(path_of(session.session_id))).status_code == 404


async def test_the_session_of_one_run_is_deleted_with_it(served: Served, writer: Writer) -> None:
    """There is no log of it that could be deleted."""
    await writer.open()
    assert (await served.http.delete(path_of(f"run-{writer.run}"))).status_code == 202
    for path in (path_of(f"run-{writer.run}"), f"/v1/runs/{writer.run}"):
        assert (await served.http.get(path)).status_code == 404


async def test_a_request_may_be_refused_while_another_run_has_the_turn(served: Served, session: SessionWriter) -> None:
    """`on_busy` counts while that run works, `on_paused` while it waits for a person, neither once it has ended."""
    running = Writer(session.bus)
    await running.open(session_id=session.session_id)

    async def answers() -> list[int]:
        wanted: list[dict[str, str]] = [{"on_busy": "reject"}, {"on_paused": "reject"}, {}]
        body = {"query": "x", "session_id": session.session_id}
        return [(await served.http.post("/v1/runs", json={**body, **each})).status_code for each in wanted]

    assert await answers() == [202, 202, 202]
    await session.begin(running.run)
    assert await answers() == [409, 202, 202]
    body = {"query": "x", "session_id": session.session_id, "on_busy": "reject"}
    assert (await served.http.post("/v1/runs", json=body)).json()["code"] == "session_busy"
    call = PlannedCall(call_id="1-1", tool="pay", args={"sum": 9})
    await running.log(Step(step=1, node="pay", status="started", calls=[call]), paused("1-1", tool="pay"))
    assert await answers() == [202, 409, 202]
    await running.done()
    assert await answers() == [202, 202, 202]


async def test_sessions_are_listed_newest_first(shared_nats: NatsServer, bus: Bus) -> None:
    """Page by page, of one user or of all."""
    tenant = f"t{new_id()[-8:]}"
    made = []
    for number in range(5):
        writer = SessionWriter(bus, f"s{number}", tenant=tenant, user_id="ann" if number % 2 else None)
        await writer.start()
        writer.state = writer.state.model_copy(update={"created_at": 1_700_000_000_000 + number})
        made.append((await writer.enter()).session_id)
    async with serving_as(shared_nats.url, tenant) as served:
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = (await served.http.get("/v1/sessions", params={"limit": 2, **cursor})).json()
            found += [each["session_id"] for each in page["sessions"]]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert found == made[::-1]
        page = (await served.http.get("/v1/sessions?user_id=ann")).json()
        assert [each["session_id"] for each in page["sessions"]] == ["s3", "s1"]
        assert (await served.http.get("/v1/runs")).json()["runs"] == []
