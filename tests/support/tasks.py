"""Background tasks of a session as the planner writes them, and its answers to what people request."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from contracts.sessions.records import SESSION_MESSAGE, KnownSessionEvent
from contracts.sessions.tasks import (
    GroupOpened,
    GroupSealed,
    SessionTaskControl,
    TaskControlDone,
    TaskControlRefused,
    TaskSpawned,
)
from contracts.wire.faults import Fault
from tests.support.gateways import Writer
from tests.support.session_writer import SessionWriter
from tests.support.waiting import wait_until

T = TypeVar("T")


async def a_task(session: SessionWriter, group: str = "", joins: str | None = None, **settings: Any) -> Writer:
    """A task that goes on: alone, as the first one of a group, or in the group of the task `joins`.

    `settings`: of the group. The run that has the turn has spawned it.
    """
    task = Writer(session.bus, session.tenant)
    assert session.state.current is not None
    parent = session.state.current.run
    spawned = TaskSpawned(
        task_id=task.run, group_id=joins or task.run, run=parent, call_id="1-1", mode="subagent", query="how many?"
    )
    opened = [] if joins else [GroupOpened(group_id=task.run, name=group, run=parent, **settings)]
    sealed = [] if joins or group else [GroupSealed(group_id=task.run, by="spawn")]
    await session.log(*opened, spawned, *sealed)
    await task.open(session_id=session.session_id, user_id=session.user_id, cause="task", parent=parent)
    return task


async def requests_to(session: SessionWriter) -> list[tuple[int, SessionTaskControl]]:
    """What waits for the planner, with sequences."""
    stored = await (await session.bus.reader("INBOX")).read(f"session_inbox.{session.tenant}.{session.key}.*")
    found = [(sequence, SESSION_MESSAGE.validate_json(data)) for sequence, data in stored]
    return [(sequence, message) for sequence, message in found if isinstance(message, SessionTaskControl)]


async def answered(
    session: SessionWriter, work: Awaitable[T], *events: KnownSessionEvent, fault: Fault | None = None
) -> tuple[SessionTaskControl, T]:
    """Answer the one request of `work` as the planner would; return the request, and the result of `work`."""
    before = len(await requests_to(session))
    working = asyncio.ensure_future(work)

    async def newest() -> list[tuple[int, SessionTaskControl]]:
        return (await requests_to(session))[before:]

    ((sequence, request),) = await wait_until(newest, what="the request is stored")
    assert not working.done()
    answer = TaskControlRefused(id=request.id, fault=fault) if fault else TaskControlDone(id=request.id)
    await session.log(*events, answer, by=f"INBOX:{sequence}")
    return request, await working
