"""`runwire tasks`, and the results among `runwire approvals`, with a gateway whose planner is the test."""

import asyncio
import json
from pathlib import Path

import pytest

from contracts.sessions.tasks import GroupEnded, GroupSealed, ResultsMerged, TaskEnded
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.gateway.conftest import bus, served
from tests.runwire.client.conftest import shared_nats
from tests.runwire.conftest import Ended, runwire
from tests.support.gateways import Served
from tests.support.session_writer import SessionWriter
from tests.support.tasks import a_task, answered

__all__ = ["bus", "served", "shared_nats"]


pytestmark = pytest.mark.usefixtures("_quiet_services")


@pytest.fixture
async def session(bus: Bus) -> SessionWriter:
    """A session whose first run has the turn."""
    writer = SessionWriter(bus, f"s {new_id()}")
    await writer.start()
    await writer.begin(new_id())
    return writer


async def test_tasks_are_listed_shown_and_decided(served: Served, session: SessionWriter, tmp_path: Path) -> None:
    """For people and as JSON; results that wait are among the approvals until somebody decides."""

    async def called(*arguments: str) -> Ended:
        return await asyncio.to_thread(runwire, *arguments, "--url", served.url, data=tmp_path)

    of_session = ("--session", session.session_id)
    first = await a_task(session, "monday", merge="HUMAN_GATED")
    second = await a_task(session, joins=first.run)
    table = (await called("tasks", "ls", *of_session)).stdout.splitlines()
    assert table[0].split() == ["task", "status", "age", "group", "name"]
    assert [line.split()[:2] for line in table[1:]] == [[first.run, "running"], [second.run, "running"]]
    _, cancelled = await answered(
        session, called("tasks", "cancel", second.run), TaskEnded(task_id=second.run, outcome="cancelled")
    )
    assert "cancelled" in cancelled.stdout
    _, sealed = await answered(
        session, called("tasks", "seal", first.run), GroupSealed(group_id=first.run, by="person")
    )
    assert "sealed" in sealed.stdout
    await session.log(
        TaskEnded(task_id=first.run, outcome="succeeded", digest="42 orders"),
        GroupEnded(group_id=first.run, status="complete", awaits_decision=True),
    )
    await session.enter()
    assert "42 orders" in (await called("tasks", "show", first.run)).stdout
    groups = json.loads((await called("tasks", "ls", "--groups", "-o", "json", *of_session)).stdout)
    assert [(group["group_id"], group["awaits_decision"]) for group in groups] == [(first.run, True)]
    assert json.loads((await called("approvals", "-o", "json")).stdout) == groups
    merged = ResultsMerged(group_id=first.run, tasks=[first.run])
    request, applied = await answered(session, called("tasks", "apply", first.run, "--group"), merged)
    assert (request.action, request.group_id, "applied" in applied.stdout) == ("apply", first.run, True)
    await session.enter()
    nothing = await called("approvals")
    assert (nothing.stdout, "nothing waits" in nothing.stderr) == ("", True)
