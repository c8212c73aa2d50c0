"""The logs of sessions on a real server: fence, checkpoints, and the state at a sequence."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from contracts.sessions import records as facts
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.reads import DirectReader
from services.planner.logs.session_log import SessionAddress, SessionLogs
from tests.support.session_logs import appended

STARTED = facts.SessionStarted(session_id="s")


def address() -> SessionAddress:
    return SessionAddress.of("default", new_id())


def run_of(number: int) -> list[facts.KnownSessionEvent]:
    """The events of a run that has begun and ended at once."""
    run = f"{number:032x}"
    ended = facts.RunEnded(run=run, outcome="done", question="q", answer=str(number))
    return [facts.RunQueued(run=run, requested_at=number), facts.RunBegun(run=run), ended]


async def test_of_two_writers_one_is_refused(bus: Bus) -> None:
    """And has read what the other one wrote."""
    where, mine, theirs = address(), SessionLogs(bus), SessionLogs(bus)
    first, second = await mine.load(where), await theirs.load(where)
    results = await asyncio.gather(
        mine.append(where, first, "INBOX:1", [STARTED]), theirs.append(where, second, "INBOX:2", [STARTED])
    )
    assert sum(each is None for each in results) == 1
    assert (await mine.load(where)).seq == (await theirs.load(where)).seq > 0


async def test_of_a_deleted_session_nothing_is_left_in_the_end(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last record goes after a day. By then a planner that remembers the conversation looks at its log anew."""
    where, mine, theirs = address(), SessionLogs(bus), SessionLogs(bus)
    (*_, session) = await appended(
        mine, where, [STARTED], *(run_of(number) for number in range(facts.CHECKPOINT_EVERY - 2))
    )
    assert (await theirs.load(where)).turns
    deleted = await mine.append(where, session, "INBOX:1", [facts.SessionDeleted()])
    assert deleted is not None
    last = await bus.last(subjects.SESSIONS, subjects.session_log(*where))
    assert last is not None
    assert (last.headers or {})["Nats-TTL"] == str(facts.DELETED_TTL_S)
    await mine.purge(where, deleted.seq + 1)
    monkeypatch.setattr(facts, "MAX_REMEMBERED_S", 0)
    (anew,) = await appended(theirs, where, [STARTED])
    assert (anew.runs, anew.turns) == (0, [])


async def test_a_log_that_is_trimmed_says_so(bus: Bus) -> None:
    """To whoever reads it from before that. All that was not forgotten is known from its checkpoint."""
    where, logs = address(), SessionLogs(bus)
    (*_, session) = await appended(
        logs, where, [STARTED], *(run_of(n) for n in range(3)), [facts.RunsForgotten(runs=[f"{1:032x}"])]
    )
    for _ in range(2):  # Its message may come again.
        await logs.trim(where)
        assert [record.types() for record in await logs.whole(where)] == ["checkpoint,runs_forgotten"]
        for later in (await SessionLogs(bus).load(where), await SessionLogs(bus).at(where, session.seq)):
            assert [turn.answer for turn in later.turns] == ["0", "2"]
    assert {*await logs.runs(where, await logs.load(where))} == {f"{0:032x}", f"{2:032x}"}


async def test_a_long_log_is_loaded_from_its_newest_checkpoint(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two reads, and all that the older records said."""
    where, logs, reads = address(), SessionLogs(bus), list[tuple[Any, ...]]()
    log = subjects.session_log(*where)
    states = await appended(logs, where, [STARTED], *(run_of(number) for number in range(facts.CHECKPOINT_EVERY + 20)))
    newest = await bus.last(subjects.SESSIONS, log)
    assert newest is not None
    assert int((newest.headers or {})[facts.CHECKPOINT_HEADER]) == states[-1].checkpoint_seq > 0

    def noted(read: Callable[..., Any]) -> Callable[..., Any]:
        async def noting(*args: Any, **more: Any) -> Any:
            reads.append(args[1:3])
            return await read(*args, **more)

        return noting

    with monkeypatch.context() as patch:
        for of, name in ((Bus, "last"), (DirectReader, "page")):
            patch.setattr(of, name, noted(getattr(of, name)))
        loaded = await SessionLogs(bus).load(where)
    assert loaded == states[-1]
    assert reads == [(subjects.SESSIONS, log), (log, loaded.checkpoint_seq)]
    assert loaded.runs == facts.CHECKPOINT_EVERY + 20
    assert len(await logs.whole(where)) == facts.CHECKPOINT_EVERY + 22
