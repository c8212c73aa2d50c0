"""Tasks of a session, and a planner that is killed between any two steps: another one finishes what it began."""

import json
from collections import Counter
from pathlib import Path

import pytest

from contracts.sessions.records import SessionDeletionRequested
from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.planner.logs.session_log import SessionAddress
from tests.planner.sessions.task_scripts import HOST, PARENT, events_of, scripted, settled, spawn
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, Say, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning
from tests.support.session_logs import session_of
from tests.support.waiting import wait_until

ACK_WAIT_S = 1.0
"""Of the planner that goes on: what the dead one had received is delivered again after it."""
STEPS = {
    "the task is stored": ('"type":"task_spawned"', "known", "emit"),
    "the task is not yet requested": ('"cause":"task"', "before", "request"),
    "the spawn has no answer": ('"tool":"task.spawn"', "before", "inbox"),
    "the group has no timer": ('"kind":"group_due"', "before", "timer"),
    "the end of a task is not stored": ('"type":"task_ended"', "before", "emit"),
    "the end of a task is stored": ('"type":"task_ended"', "known", "emit"),
    "what a task has spent is not sent": ('"kind":"task_settled"', "before", "control"),
    "the report is stored": ('"type":"reported"', "known", "emit"),
    "the report is not yet requested": ('"cause":"report"', "before", "request"),
    "the report is requested": ('"cause":"report"', "known", "request"),
}


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """The agents file of both planners."""
    path = tmp_path / "agents.json"
    path.write_text(json.dumps(HOST))
    return path


@pytest.mark.sample(3)
@pytest.mark.parametrize("step", STEPS)
async def test_each_step_is_done_once(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, agents: Path, step: str
) -> None:
    """Two tasks of a group, and one report, whichever planner dies."""
    url, session_id = own_nats_server.url, new_id()
    scripted(provider, spawn("a", group="g"), spawn("b", group="g"), answer("Begun."), a=answer("A."), b=answer("B."))
    dying = DyingPlanner(url, provider.url, *STEPS[step], agents_file=agents)
    run = await client.ask(PARENT, agent="host", session_id=session_id)
    await dying.dead()
    async with planning(url, provider, agents_file=agents, ack_wait_s=ACK_WAIT_S):
        assert (await client.ended(run, 60)).end.raw_answer == "Begun."
        session = await settled(client.bus, session_id, reports=1)
        events = await events_of(client.bus, session_id)
    types = Counter(event.type for event in events)
    wanted = {"group_opened": 1, "task_spawned": 2, "task_ended": 2, "group_ended": 1, "reported": 1, "run_begun": 2}
    assert {name: types[name] for name in wanted} == wanted
    assert [turn.answer for turn in session.turns] == ["Begun.", "All of it is done."]
    assert sorted(result.digest for result in session.background.results) == ["A.", "B."]


async def gone(bus: Bus, session_id: str) -> None:
    """Return once a session is deleted."""

    async def is_gone() -> bool:
        return [event.type for event in await events_of(bus, session_id)] == ["deleted"]

    await wait_until(is_gone, what="the session is gone")


async def delete(bus: Bus, session_id: str) -> None:
    """Ask for the deletion of a session."""
    subject = subjects.session_inbox(*SessionAddress.of("default", session_id), "delete")
    await bus.publish(subject, SessionDeletionRequested().model_dump_json().encode())


async def is_deleted(bus: Bus, run: str) -> bool:
    """Whether a run is deleted, or is about to be."""
    return bool((await Bucket(bus, keys.RUNS_BUCKET).get(keys.run_deletion("default", run))).sequence)


async def test_a_deletion_takes_the_tasks_with_it(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, agents: Path
) -> None:
    """Open ones are cancelled, and all that is left is gone, also if the planner dies meanwhile."""
    url, bus, session_id = own_nats_server.url, client.bus, new_id()
    scripted(provider, spawn("a"), spawn("b"), answer("Begun."), a=Say(silent=True), b=answer("B."))
    text = '"reason":"the session is being deleted"'
    dying = DyingPlanner(url, provider.url, text, "known", "control", agents_file=agents)
    await client.ask(PARENT, agent="host", session_id=session_id)

    async def one_has_ended() -> bool:
        tasks = (await session_of(bus, session_id)).background.tasks.values()
        return sorted(task.status for task in tasks) == ["running", "succeeded"]

    await wait_until(one_has_ended, what="one of two tasks has ended")
    tasks = list((await session_of(bus, session_id)).background.tasks)
    await delete(bus, session_id)
    await dying.dead()
    async with planning(url, provider, agents_file=agents, ack_wait_s=ACK_WAIT_S):
        await gone(bus, session_id)
    assert all([await is_deleted(bus, task) for task in tasks])
    where = SessionAddress.of("default", session_id)
    pattern = subjects.timer.pattern(tenant=where.tenant, run=where.key)
    timers = await bus.api("STREAM.INFO.TIMERS", {"subjects_filter": pattern})
    assert not timers["state"].get("subjects")


@pytest.mark.sample(1)
@pytest.mark.parametrize("moment", ["before", "known"])
async def test_a_report_does_not_outlive_its_session(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, agents: Path, moment: str
) -> None:
    """The planner dies before or after it requests the report, and the session is deleted meanwhile."""
    url, bus, session_id = own_nats_server.url, client.bus, new_id()
    scripted(provider, spawn("a"), answer("Begun."), a=answer("A."))
    dying = DyingPlanner(url, provider.url, '"cause":"report"', moment, "request", agents_file=agents)
    await client.ask(PARENT, agent="host", session_id=session_id)
    await dying.dead()
    (report,) = (await session_of(bus, session_id)).background.reports
    await delete(bus, session_id)
    async with planning(url, provider, agents_file=agents, ack_wait_s=ACK_WAIT_S):
        await gone(bus, session_id)
        assert (await client.ended(report.report_id)).end.type in {"cancelled", "error"}  # Or it was refused.
    assert await is_deleted(bus, report.report_id)
    assert await bus.last(subjects.RUNS, subjects.context("default", report.report_id)) is None
    assert [event.type for event in await events_of(bus, session_id)] == ["deleted"]
