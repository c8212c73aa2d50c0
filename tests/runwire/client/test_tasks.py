"""The client's background tasks and groups, with a gateway whose planner is the test."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from contracts.sessions.tasks import GroupEnded, GroupSealed, ResultsMerged, ResultsRejected, TaskControlDone, TaskEnded
from contracts.wire.faults import Fault
from contracts.wire.ids import new_id
from runwire import Client, RunwireError
from runwire.errors import NotFound
from services.gateway.runs import messages
from services.messaging.connection import Bus
from tests.support.gateways import Served
from tests.support.session_writer import SessionWriter
from tests.support.tasks import a_task, answered, requests_to
from tests.support.waiting import wait_until


@pytest.fixture
async def session(bus: Bus) -> SessionWriter:
    """A session whose first run has the turn."""
    writer = SessionWriter(bus, f"s/{new_id()}")
    await writer.start()
    await writer.begin(new_id())
    return writer


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    """Of the gateway."""
    async with Client(served.url, patience_s=10) as made:
        yield made


async def test_tasks_and_groups_from_the_first_to_the_decision(client: Client, session: SessionWriter) -> None:
    """Each change gives the task or group as it is then."""
    first = await a_task(session, "monday", merge="HUMAN_GATED")
    second = await a_task(session, joins=first.run)
    assert [task.task_id for task in await client.tasks(session.session_id)] == [first.run, second.run]
    assert await client.tasks(session.session_id, "failed") == []
    _, sealed = await answered(session, client.seal_group(first.run), GroupSealed(group_id=first.run, by="person"))
    assert (sealed.status, sealed.tasks) == ("sealed", [first.run, second.run])
    ended = TaskEnded(task_id=second.run, outcome="cancelled")
    _, cancelled = await answered(session, client.cancel_task(second.run), ended)
    assert cancelled.status == "cancelled"
    complete = GroupEnded(group_id=first.run, status="complete", awaits_decision=True)
    await session.log(TaskEnded(task_id=first.run, outcome="succeeded", digest="42"), complete)
    assert (await client.group(first.run)).awaits_decision
    held = await client.task(first.run)
    assert (held.result, held.is_held) == ("42", True)
    merged = ResultsMerged(group_id=first.run, tasks=[first.run])
    _, applied = await answered(session, client.apply_group(first.run), merged)
    assert (applied.decision, applied.awaits_decision) == ("applied", False)
    fault = Fault(code="already_decided", reason="the results were applied")
    with pytest.raises(RunwireError) as refused:
        await answered(session, client.reject_group(first.run), fault=fault)
    assert (refused.value.code, refused.value.status) == ("already_decided", 409)
    assert [group.group_id for group in await client.groups(session.session_id)] == [first.run]


async def test_a_task_without_a_group(client: Client, session: SessionWriter) -> None:
    """A person decides about it alone. It is found by its session once its run is deleted."""
    task = await a_task(session, merge="HUMAN_GATED")
    await session.log(TaskEnded(task_id=task.run, outcome="succeeded", digest="42"))
    request, rejected = await answered(session, client.reject_task(task.run), ResultsRejected(group_id=task.run))
    assert (request.action, request.task_id, rejected.is_held) == ("reject", task.run, False)
    _, again = await answered(session, client.apply_task(task.run))
    assert not again.is_merged
    await client.delete(task.run)
    with pytest.raises(NotFound):
        await client.task(task.run)
    assert (await client.task(task.run, session_id=session.session_id)).status == "succeeded"
    with pytest.raises(NotFound):
        await client.group(task.run, session_id=session.session_id)


async def test_a_change_is_repeated_until_a_planner_has_taken_it(
    client: Client, session: SessionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the same request."""
    monkeypatch.setattr(messages, "ANSWER_WAIT_S", 0.01)
    task = await a_task(session, "monday")
    cancelling = asyncio.create_task(client.cancel_group(task.run))

    async def repeated() -> bool:
        return len(await requests_to(session)) > 1

    await wait_until(repeated, what="the client has repeated its request")
    (sequence, request), *others = await requests_to(session)
    assert {each.id for _, each in others} == {request.id}
    sealed = GroupSealed(group_id=task.run, by="person")
    await session.log(sealed, TaskControlDone(id=request.id), by=f"INBOX:{sequence}")
    assert (await cancelling).status == "sealed"
