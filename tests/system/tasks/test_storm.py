"""Each task, group, report, schedule and delivery is handled once, and no result is lost, whatever is killed.

Set TEST_SEED to repeat a storm's choices.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.sessions.schedules import MAX_LATENESS_S
from contracts.wire.ids import new_id
from tests.support.waiting import wait_until
from tests.system import chaos
from tests.system.client import Client
from tests.system.conversations.evidence import Conversations
from tests.system.system import System, planned
from tests.system.tasks.evidence import TaskStorm, start_of
from tests.system.tasks.model import TasksModel
from tests.system.tasks.schedules import one_off
from tests.system.tasks.storm import Work, hold, judged
from tests.system.tasks.workload import AGENTS
from tests.system.traces import Event, Evidence, end_of

pytestmark = [pytest.mark.system]
_TOOLS = Path(__file__).parent / "tools.py"
_LONG = {
    "type",
    "request",
    "limits",
    "tools",
    "report_as",
    "llm_context",
    "payload",
    "usage",
    "spent",
    "state",
    "input_schema",
}


@pytest.fixture(scope="module")
def task_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Two instances of everything, with agents that may spawn tasks."""
    folder = tmp_path_factory.mktemp("tasks")
    agents = folder / "agents.toml"
    agents.write_text(AGENTS)
    env = {"RUNWIRE_AGENTS_FILE": str(agents)}
    with planned(folder, gateways=2, tools=_TOOLS, model=TasksModel, env=env) as system:
        yield system
        assert system.nats.violations() == []


@pytest.mark.timeout(300)
async def test_a_short_storm_breaks_no_promise(task_system: System) -> None:
    """Sixteen requests in four sessions, eight blows on processes and one on the server."""
    await _survive(16, 4, 9, 1, task_system)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_a_long_storm_breaks_no_promise(task_system: System) -> None:
    """Two hundred requests in twenty-five sessions, a hundred blows and more, five of them on the server."""
    await _survive(200, 25, 120, 5, task_system)


@pytest.mark.chaos
@pytest.mark.timeout(300)
async def test_a_missed_time_is_skipped_or_made_up_for_once(task_system: System) -> None:
    """No planner is there until a minute after the time has passed."""
    stack, found = task_system.stack, TaskStorm(Conversations(Evidence([])))
    stack.mend()
    async with Client(stack.url) as client:
        for missed in ("skip", "run_once"):
            await one_off(client, found, f"missed-{new_id()}", in_s=3, missed=missed)
        for name in stack.names("planner"):
            stack.kill(name)
        due_at = max(fire.at or 0 for fire in found.fires) / 1000
        await asyncio.sleep(due_at + MAX_LATENESS_S + 1 - time.time())
        stack.mend()  # Not in a thread: a process dies with the thread that started it.
        skipped, made_up = (fire.run for fire in found.fires)

        async def has_run() -> bool:
            answer = await client.surely("GET", f"/v1/runs/{made_up}")
            return answer.status_code == 200 and answer.json()["status"] == "done"

        await wait_until(has_run, timeout=30, what="the missed run was made up for")
        assert (await client.surely("GET", f"/v1/runs/{skipped}")).status_code == 404


async def _survive(runs: int, sessions: int, blows: int, server_kills: int, system: System) -> None:
    seed = int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    storm = chaos.Storm(runs=runs, blows=blows, server_kills=server_kills, seed=seed)
    with system.stack.showing_logs():
        work = await hold(storm, system, sessions=sessions)
        complaints = await judged(work)
        report = "\n".join([_summary(work, complaints), *_timeline(work, json.dumps(complaints))])
        sys.stdout.write(report + "\n")
        assert not complaints, report


def _summary(work: Work, complaints: dict[str, list[str]]) -> str:
    ends: Counter[str] = Counter()
    for run in work.found.talks.of_runs.runs:
        end, request = end_of(run), start_of(run)
        cause = "?" if request is None else request["cause"]
        ends[f"{cause} {'none' if end is None else end[1].get('route') or end[1].get('code') or end[1]['type']}"] += 1
    events = Counter(
        event["type"] for each in work.found.talks.sessions.values() for record in each for event in record.events
    )
    said = {
        "seed": work.storm.seed,
        "runs": len(work.found.talks.of_runs.runs),
        "ends": dict(sorted(ends.items())),
        "events of sessions": dict(sorted(events.items())),
        "decisions": dict(Counter(f"{each.decision} {each.status}" for each in work.found.talks.decisions)),
        "controls": dict(Counter(f"{each.action} {each.status} {each.code}".strip() for each in work.found.controls)),
        "fires": len(work.found.fires),
        "executions": len(work.found.talks.of_runs.executions),
        "blows": dict(work.session.blows),
        "complaints": complaints,
    }
    return json.dumps(said, indent=1)


def _timeline(work: Work, complaints: str) -> Iterator[str]:
    """What happened in the sessions and to the runs that the complaints name, and the blows, in the order of time."""
    logs = {name: records for name, records in work.found.talks.sessions.items() if name in complaints}
    named = {run.run_id for run in work.found.talks.of_runs.runs if run.run_id in complaints}
    for records in logs.values():
        named |= {run for run in work.found.runs() if run in json.dumps([record.events for record in records])}
    logs |= {
        run.run_id: run.records for run in work.found.talks.of_runs.runs if run.run_id in named and complaints != "{}"
    }
    moments = [(at, f"* {blow} {name}") for at, blow, name in work.session.history] if logs else []
    for name, records in logs.items():
        moments += [
            (each.at, f"{name[:12]} {_brief(event)}")
            for each in records
            if each.kind != "stream"
            for event in each.events
        ]
    yield from (f"{at % 10_000:9.3f} {what}" for at, what in sorted(moments))


def _brief(event: Event) -> str:
    shown = {name: value for name, value in event.items() if name not in _LONG and value not in (None, "", [], {})}
    return f"{event['type']} {json.dumps(shown)}"[:400]
