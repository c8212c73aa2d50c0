"""A run that was deleted, or kept long enough, leaves nothing anywhere, also where a planner dies in the middle."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contracts.runs.events import Cancelled
from contracts.runs.inbox import INBOX_MESSAGE, CancelRequested
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunDeletion
from contracts.sessions.records import SESSION_MESSAGE, SessionDeletionRequested
from contracts.wire import keys, subjects
from contracts.wire.records import EVENTS_HEADER
from services.messaging.connection import Bus
from services.planner.effects import bookkeeping
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run
from services.planner.upkeep import deletions
from services.planner.upkeep.deletions import Deletions
from services.shared.artifacts.errors import ArtifactNotFound
from tests.support.buses import provisioned
from tests.support.gateways import Writer
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.session_writer import SessionWriter
from tests.support.stores import Store, serving
from tests.support.waiting import wait_until

STREAMS = ("REQUESTS", "INBOX", "RUNS", "CALLS", "TIMERS", "KV_runs", "KV_artifacts")
FOR_NOW: dict[str, Any] = {"again_s": 0, "kept_s": 60}
FOR_GOOD: dict[str, Any] = {"again_s": 0, "kept_s": 0}


@pytest.fixture
async def store(rclone: S3Server, own_nats_server: NatsServer) -> AsyncIterator[Store]:
    """A store, and a bus on a server with all streams."""
    async with provisioned(own_nats_server.url), serving(rclone, own_nats_server.url) as found:
        found.tenant = "default"
        yield found


async def a_run(store: Store, *, ended: bool = True, ended_at: int = 2) -> Writer:
    """A run that has left something in every place."""
    bus, writer = store.bus, Writer(store.bus)
    who = (writer.tenant, writer.run)
    await writer.open(session_id="s")
    await writer.chunk("text")
    run = Run()
    fold(run, 1, 1, [started := writer.started(session_id="s")])
    await bookkeeping.enter(bus, run, started.request, lambda: asyncio.sleep(0, run))
    if ended:
        await writer.cancelled()
        fold(run, 2, ended_at, [Cancelled(payload=FinalPayload(raw_answer=""))])
        await bookkeeping.close(bus, run, started.request, has_timers=True)
    for subject in (
        subjects.request(*who),
        subjects.inbox(*who, "1-1"),
        subjects.control(*who, "top_up-1"),
        subjects.call(*who, "tool"),
        subjects.context(*who),
        subjects.timer(*who, "pause"),
    ):
        await bus.publish(subject, b"x")
    for body, namespace in ((b"of this run alone" * 9, None), (b"shared" * 30, "input_image")):
        await store.client.put("default", body, session="s", run=writer.run, namespace=namespace)
    return writer


async def traces(bus: Bus, run: str) -> set[str]:
    """Every subject on which something of the run is stored; the mark of a removed key holds nothing.

    A timer that has gone off meanwhile is the same trace.
    """
    found: set[str] = set()
    for stream in STREAMS:
        subjects_of = (await bus.api(f"STREAM.INFO.{stream}", {"subjects_filter": ">"}))["state"].get("subjects") or ()
        for subject in subjects_of:
            if run in subject and (message := await bus.last(stream, subject)) is not None and message.data:
                found.add(re.sub("^due", "timer", subject))
    return found


async def delete(bus: Bus, writer: Writer) -> int:
    """Write the deletion, as the gateway does, and return its sequence."""
    at = time.time_ns() // 1_000_000
    deletion = RunDeletion(at=at, requested_at=writer.started().request.requested_at)
    return await bus.publish(f"$KV.runs.{keys.run_deletion(writer.tenant, writer.run)}", deletion)


async def only_marks_are_left(bus: Bus, run: str, what: str) -> None:
    """Return once all that is stored of a run says that it was deleted."""
    marks = {f"$KV.runs.deleted.default.{run}", subjects.log("default", run)}

    async def are_left() -> bool:
        return await traces(bus, run) == marks

    await wait_until(are_left, what=what)


async def test_nothing_is_left_but_that_it_was_deleted(store: Store) -> None:
    """Only the mark of the deletion stays for a day. Another run's artifact with the same bytes stays."""
    writer, other = await a_run(store), await a_run(store)
    mine = (await store.client.list("default", run=writer.run)).artifacts
    theirs = await traces(store.bus, other.run)
    assert len(mine) == 2
    await delete(store.bus, writer)
    await Deletions(store.bus, **FOR_NOW).check()
    await only_marks_are_left(store.bus, writer.run, "the store has seen to its lists")
    last = await store.bus.last("RUNS", subjects.log("default", writer.run))
    assert last is not None
    assert (last.headers or {})[EVENTS_HEADER] == "deleted"
    for stored in mine:
        with pytest.raises(ArtifactNotFound):
            await store.client.head("default", stored.ref.artifact_id)
    deletions = Deletions(store.bus, **FOR_GOOD)
    await deletions.check()
    await deletions.check()
    assert await traces(store.bus, writer.run) == set()
    assert await traces(store.bus, other.run) == theirs
    for stored in (await store.client.list("default", run=other.run)).artifacts:
        assert (await store.client.read("default", stored.ref.artifact_id, limit=1000))[1]


async def test_a_planner_may_die_at_every_step(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successor finds the deletion, and ends it."""
    steps, died = 0, True
    while died:
        writer = await a_run(store)
        at = await delete(store.bus, writer)
        left = steps

        def counted(does: Any) -> Any:
            async def step(*args: Any, **more: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return await does(*args, **more)

            return step

        async def check(at: int = at) -> None:
            deletions = Deletions(store.bus, **FOR_NOW)
            deletions._seen = at - 1  # Earlier ones of this test would come first.
            await deletions.check()

        with monkeypatch.context() as patch:
            for name in ("publish", "api", "last", "request"):
                patch.setattr(store.bus, name, counted(getattr(store.bus, name)))
            with contextlib.suppress(Killed):
                await check()
            died = left < 0
        await check()
        await only_marks_are_left(store.bus, writer.run, f"all is gone although the planner died at step {steps}")
        steps += 3
    assert steps > 20


class Killed(BaseException):
    """The error that ends the planner."""


async def test_an_open_run_is_cancelled_first(store: Store) -> None:
    """Its planner ends the run first; until then nothing is removed."""
    writer = await a_run(store, ended=False)
    before = await traces(store.bus, writer.run)
    await delete(store.bus, writer)
    deletions = Deletions(store.bus, **FOR_NOW)
    await deletions.check()
    control = subjects.control("default", writer.run, "cancel")
    message = await store.bus.last("INBOX", control)
    assert message is not None
    assert INBOX_MESSAGE.validate_json(message.data) == CancelRequested(reason="deleted")
    assert await traces(store.bus, writer.run) == before | {control, f"$KV.runs.deleted.default.{writer.run}"}
    await writer.cancelled()
    deletions._due[0].at = 0
    await deletions.check()
    assert await store.bus.last("RUNS", subjects.stream("default", writer.run)) is None


async def test_finished_runs_are_swept_with_their_artifacts(store: Store) -> None:
    """Run, events, artifacts and images; what ended later stays, and so does what is open, however old."""
    writer, open_, young = await a_run(store), await a_run(store, ended=False), await a_run(store, ended_at=9000)
    assert await deletions.sweep(store.bus, store.client, before=5000) == 1
    assert await deletions.sweep(store.bus, store.client, before=5000) == 0
    assert (await store.client.list("default", run=writer.run)).artifacts == []
    found = await traces(store.bus, writer.run)
    assert not {subject for subject in found if subject.startswith(("emit.", "$KV.runs."))}
    for kept in (open_, young):
        assert len((await store.client.list("default", run=kept.run)).artifacts) == 2
        assert {subject for subject in await traces(store.bus, kept.run) if subject.startswith(("emit.", "$KV.runs."))}


async def test_sessions_forget_swept_runs_and_go_with_their_last_one(store: Store) -> None:
    """Each is told once for all of its runs; one in which nothing happened since is deleted, if nobody waits in it."""
    runs = [await a_run(store) for _ in range(2)]
    old, busy = SessionWriter(store.bus, "old"), SessionWriter(store.bus, "busy")
    young = SessionWriter(store.bus, "s")  # That of the runs.
    for writer in (old, busy, young):
        await writer.start()
    await busy.begin("c" * 32)
    for writer, at in ((old, 4000), (busy, 4000), (young, 6000)):
        writer.state = writer.state.model_copy(update={"created_at": at, "updated_at": at})
        await writer.enter()
    assert await deletions.sweep(store.bus, store.client, before=5000) == 2

    async def told(writer: SessionWriter, kind: str) -> Any:
        reader = await store.bus.reader("INBOX")
        stored = await reader.messages(subjects.session_inbox.pattern(tenant="default", session_key=writer.key))
        found = [SESSION_MESSAGE.validate_json(message.data) for message in stored]
        return next((each for each in found if each.kind == kind), None)

    assert await told(old, "delete") == SessionDeletionRequested(by="retention", unchanged_since=4000)
    assert [await told(writer, "delete") for writer in (busy, young)] == [None, None]
    assert sorted((await told(young, "forget")).runs) == sorted(each.run for each in runs)
