"""A session with as many tasks as it may have: its state is bounded, and loading it costs two reads."""

import pytest

from contracts.sessions.records import KnownSessionEvent, RunBegun, RunQueued, SessionStarted
from contracts.sessions.tasks import (
    MAX_DIGEST_BYTES,
    GroupEnded,
    GroupOpened,
    GroupSealed,
    Reported,
    TaskEnded,
    TaskSpawned,
)
from contracts.wire.base import MAX_RECORD_BYTES
from contracts.wire.names import new_id, unix_ms
from services.messaging.connection import Bus
from services.messaging.reads import DirectReader
from services.planner.logs.session_log import SessionAddress, SessionLogs
from services.shared.sessions.fold import checkpoint
from services.shared.sessions.state import Session

RUN = "f" * 32
TASKS, TASKS_PER_RECORD = 1000, 8


def spawned(number: int) -> list[KnownSessionEvent]:
    """The events of a task that is alone in its group."""
    task = f"{number:032x}"
    group = GroupOpened(group_id=task, run=RUN, report_as={"agent": "host", "hops": 1}, timeout_at=unix_ms())
    spawn = TaskSpawned(
        task_id=task,
        group_id=task,
        run=RUN,
        call_id=f"{number}-1",
        name=f"task {number}",
        mode="subagent",
        query=f"What is {number}?",
        requested_at=unix_ms(),
    )
    return [group, spawn, GroupSealed(group_id=task, by="spawn")]


def ended(number: int) -> list[KnownSessionEvent]:
    """The events of its end, with as long a result as there may be, and a report that has not begun."""
    task = f"{number:032x}"
    return [
        TaskEnded(task_id=task, outcome="succeeded", digest="x" * MAX_DIGEST_BYTES),
        GroupEnded(group_id=task, status="complete"),
        Reported(report_id=new_id(), group_id=task, kind="task", tasks=[task]),
    ]


async def written(bus: Bus, where: SessionAddress) -> Session:
    """A session with 1,000 tasks, half of which have ended."""
    logs = SessionLogs(bus)
    session = await logs.load(where)
    begun: list[KnownSessionEvent] = [
        SessionStarted(session_id="s"),
        RunQueued(run=RUN, requested_at=1),
        RunBegun(run=RUN),
    ]
    events = [event for number in range(TASKS) for event in spawned(number)]
    size = 3 * TASKS_PER_RECORD
    records: list[list[KnownSessionEvent]] = [begun, *(events[at : at + size] for at in range(0, len(events), size))]
    records += [ended(number) for number in range(TASKS // 2)]
    for record in records:
        after = await logs.append(where, session, "INBOX:1", record)
        assert after is not None
        session = after
    return session


async def test_a_session_with_1000_tasks_is_loaded_with_two_reads(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its whole state fits into one message."""
    where = SessionAddress.of("default", new_id())
    session = await written(bus, where)
    assert len(session.background.tasks) == TASKS
    state = checkpoint(session)
    assert state is not None
    assert len(state.model_dump_json()) < MAX_RECORD_BYTES

    reads: list[str] = []
    page, last = DirectReader.page, Bus.last

    async def counted_page(*args: object, **more: object) -> object:
        reads.append("page")
        return await page(*args, **more)  # type: ignore[arg-type]

    async def counted_last(*args: object) -> object:
        reads.append("last")
        return await last(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(DirectReader, "page", counted_page)
    monkeypatch.setattr(Bus, "last", counted_last)
    loaded = await SessionLogs(bus).load(where)
    assert loaded == session
    assert reads == ["last", "page"]
