"""Each task, group, report, schedule and delivery is handled once, and no result is lost, whatever is killed."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.sessions.schedules import MAX_LATENESS_S
from contracts.wire.ids import new_id
from tests.support.samples import first_seed
from tests.support.waiting import wait_until
from tests.system.client import Client
from tests.system.conversations.evidence import Conversations
from tests.system.storm import survive
from tests.system.system import System, planned
from tests.system.tasks.evidence import TaskStorm
from tests.system.tasks.model import TasksModel
from tests.system.tasks.schedules import one_off
from tests.system.tasks.storm import Work
from tests.system.tasks.workload import AGENTS
from tests.system.traces import Evidence

pytestmark = [pytest.mark.system]
_TOOLS = Path(__file__).parent / "tools.py"


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
    await survive(Work(task_system, runs=16, blows=9, server_kills=1, seed=first_seed(), sessions=4))


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_a_long_storm_breaks_no_promise(task_system: System) -> None:
    """Two hundred requests in twenty-five sessions, a hundred blows and more, five of them on the server."""
    await survive(Work(task_system, runs=200, blows=120, server_kills=5, seed=first_seed(), sessions=25))


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
