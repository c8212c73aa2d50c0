"""Whatever is killed, frozen or restarted: each run ends once, and each turn, task and schedule is handled once."""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from contracts.sessions.schedules import MAX_LATENESS_S
from contracts.wire.names import new_id
from tests.support.samples import first_seed
from tests.support.waiting import wait_until
from tests.system import model
from tests.system.client import Client
from tests.system.conversations.storm import AGENTS as TALK_AGENTS
from tests.system.conversations.storm import TalkStorm
from tests.system.mcp_storm import AGENTS as MCP_AGENTS
from tests.system.mcp_storm import McpModel, McpStorm, add_servers
from tests.system.proposals.storm import ProposalStorm
from tests.system.run_storm import RunStorm
from tests.system.storm import survive
from tests.system.system import System, planned
from tests.system.tasks import workload
from tests.system.tasks.evidence import Tasks
from tests.system.tasks.model import TasksModel
from tests.system.tasks.schedules import has_ended, one_off
from tests.system.tasks.storm import TaskStorm

STORMS = {"runs": RunStorm, "conversations": TalkStorm, "tasks": TaskStorm, "proposals": ProposalStorm, "mcp": McpStorm}
AGENTS = {"tasks": workload.AGENTS, "mcp": json.dumps(MCP_AGENTS), "conversations": json.dumps(TALK_AGENTS)}
OF_SESSIONS = {"conversations", "tasks", "proposals"}
#: Each on a system of its own.
kinds = pytest.mark.parametrize(("kind", "storm_system"), [(kind, kind) for kind in STORMS], indirect=["storm_system"])


async def hold(kind: str, system: System, sessions: int, **much: int) -> None:
    """Hold a storm of a kind; nothing is broken by it."""
    own = {"sessions": sessions} if kind in OF_SESSIONS else {}
    await survive(partial(STORMS[kind], system, seed=first_seed())(**much, **own))


@pytest.fixture(scope="module")
def storm_system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Two copies of everything, with the tools, the agents and the model of a kind of storm."""
    folder = tmp_path_factory.mktemp("storm")
    agents = folder / ("agents.toml" if request.param == "tasks" else "agents.json")
    agents.write_text(AGENTS.get(request.param, json.dumps(model.AGENTS)))
    more: dict[str, dict[str, Any]] = {
        "tasks": {"model": TasksModel},
        "proposals": {"tables": True},
        "mcp": {"tools": None, "also": add_servers, "model": McpModel},
    }
    own = more.get(request.param, {})
    with planned(folder, gateways=2, env={"RUNWIRE_AGENTS_FILE": str(agents)}, **own) as system:
        yield system
        assert system.nats.violations() == []


@kinds
@pytest.mark.sample(1)
@pytest.mark.timeout(300)
async def test_a_short_storm_breaks_no_promise(kind: str, storm_system: System) -> None:
    """Twenty requests, nine blows on processes and one on the server."""
    await hold(kind, storm_system, sessions=5, runs=20, blows=10, server_kills=1)


@kinds
@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_a_long_storm_breaks_no_promise(kind: str, storm_system: System) -> None:
    """Two hundred requests, more than a hundred blows, five of them on the server."""
    await hold(kind, storm_system, sessions=25, runs=200, blows=130, server_kills=5)


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("storm_system", ["tasks"], indirect=True)
async def test_a_missed_time_is_skipped_or_made_up_for_once(storm_system: System) -> None:
    """No planner is there until a minute after the time has passed."""
    stack, found = storm_system.stack, Tasks([])
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

        await wait_until(partial(has_ended, client, made_up), timeout=30, what="the missed run was made up for")
        assert (await client.status(made_up))["status"] == "done"
        assert (await client.surely("GET", f"/v1/runs/{skipped}")).status_code == 404
