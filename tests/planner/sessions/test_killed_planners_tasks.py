"""Tasks of a session, and a planner that is killed between any two steps: another one finishes what it began."""

import json
from collections import Counter
from pathlib import Path

import pytest

from contracts.sessions.records import SessionEntry
from contracts.wire import keys
from contracts.wire.names import new_id
from services.messaging.kv import Bucket
from services.planner.logs.session_log import SessionAddress
from tests.planner.sessions.task_scripts import HOST, PARENT, events_of, scripted, settled, spawn
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning
from tests.support.waiting import wait_until

ACK_WAIT_S = 1.0
"""Of the planner that goes on: what the dead one had received is delivered again after it."""
STEPS = {
    "the task is stored": ('"type":"task_spawned"', "known", "emit"),
    "the task is not yet requested": ('"cause":"task"', "before", "request"),
    "the run does not know the answer": ('"type":"observed"', "before", "emit"),
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
        entry_key = keys.session_entry_key("default", session.created_at, SessionAddress.of("default", session_id).key)

        async def is_listed() -> bool:
            entry = (await Bucket(client.bus, keys.RUNS_BUCKET).get(entry_key)).parsed(SessionEntry)
            return entry is not None and (entry.current_run, entry.open_tasks, entry.runs) == (None, 0, session.runs)

        await wait_until(is_listed, what="the list knows that the session has ended")
    types = Counter(event.type for event in events)
    wanted = {"group_opened": 1, "task_spawned": 2, "task_ended": 2, "group_ended": 1, "reported": 1, "run_begun": 2}
    assert {name: types[name] for name in wanted} == wanted
    assert [turn.answer for turn in session.turns] == ["Begun.", "All of it is done."]
    assert sorted(result.digest for result in session.background.results) == ["A.", "B."]
