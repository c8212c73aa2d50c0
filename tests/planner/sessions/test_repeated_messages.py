"""What planners send for background tasks changes nothing when it is sent again, and NATS has forgotten its id."""

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.errors import Refused
from services.messaging.reads import sequence_of
from tests.planner.conftest import Plan
from tests.planner.sessions.task_scripts import HOST, PARENT, events_of, of_type, scripted, settled, spawn
from tests.support.model_server import ModelServer, action, answer
from tests.support.nats_server import NatsServer
from tests.support.session_logs import handled

SENT = ("request.", "inbox.", "control.", "session_inbox.", "timer.")
Sent = list[tuple[str, bytes, dict[str, str] | None]]


@pytest.fixture
def nats_server(own_nats_server: NatsServer) -> NatsServer:
    """The server of one test: its streams are empty once nothing is left to do."""
    return own_nats_server


async def everything(bus: Bus, session_id: str, runs: list[str]) -> tuple[list[Any], list[int]]:
    """The events of the session, and where the logs of these runs end."""
    last = [await bus.last(subjects.RUNS, subjects.log("default", run)) for run in runs]
    return await events_of(bus, session_id), [sequence_of(each) for each in last if each is not None]


@pytest.mark.parametrize("moment", ["at once", "later"])
async def test_a_repeated_message_changes_nothing(
    plan: Plan, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """All that a planner sent for a group with a job, for a task that a run waited for, and for their reports."""
    sent: Sent = []
    publish = Bus.publish_surely

    async def noted(bus: Bus, subject: str, data: bytes, message_id: str, headers: dict[str, str] | None = None) -> int:
        sequence = await publish(bus, subject, data, message_id, headers)
        if subject.startswith(SENT):
            sent.append((subject, data, headers))
            if moment == "at once":
                await again(bus, subject, data, headers)
        return sequence

    async def again(bus: Bus, subject: str, data: bytes, headers: dict[str, str] | None) -> None:
        with suppress(Refused):  # A run has one request in the stream.
            await publish(bus, subject, data, new_id(), headers)

    monkeypatch.setattr(Bus, "publish_surely", noted)
    planner, session_id = await plan(agents=HOST), new_id()
    job = action("task", name="job", mode="job", tool="look", tool_args={"q": "x"}, group="g")
    tasks = [spawn("a", group="g"), job, spawn("b", retain_turn=True), spawn("c", merge_strategy="REPLACE")]
    scripted(provider, *tasks, answer("Begun."), a=answer("A."), b=answer("B."), c=answer("C."))
    run = await planner.tell(PARENT, agent="host", session_id=session_id, tool_context={"secret": "s"})
    await settled(planner.bus, session_id, reports=2)
    await handled(planner.bus)
    runs = [run.run, *(event.task_id for event in await of_type(planner.bus, session_id, "task_spawned"))]
    runs += [event.report_id for event in await of_type(planner.bus, session_id, "reported")]
    before = await everything(planner.bus, session_id, runs)
    types = Counter(event.type for event in before[0])
    wanted = {"task_spawned": 4, "task_ended": 4, "group_ended": 3, "waiter_released": 1, "reported": 2, "run_begun": 3}
    assert {name: types[name] for name in wanted} == wanted

    for message in list(sent) if moment == "later" else []:
        await again(planner.bus, *message)
    await handled(planner.bus)
    assert await everything(planner.bus, session_id, runs) == before
    contexts = (await planner.bus.api("STREAM.INFO.RUNS", {"subjects_filter": subjects.context.all}))["state"]
    assert contexts["subjects"].keys() == {subjects.context("default", each) for each in runs}
