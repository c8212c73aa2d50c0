"""What the index says of runs that wait, while they wait and afterwards, with a real planner and NATS."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.wire.names import new_id
from tests.planner.conftest import Plan
from tests.planner.test_runs_inputs import QUESTION
from tests.planner.test_runs_pauses import paying
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, Say, action
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning
from tests.support.session_logs import status_of
from tests.support.waiting import wait_until

PAY, ENDLESS = action("pay", sum=5), Say(silent=True)
RULE = {"name": "law", "text": "What", "action": "pause", "title": "Answer this?"}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], Say | None]] = {
    "an approval": ({}, {}, PAY),
    "an answer that asks": ({"followup": "pause"}, {}, QUESTION),
    "a rule on texts": ({"input_rules": [RULE]}, {}, None),
    "a budget": ({}, {"max_tool_calls": 0, "grace_s": 60}, PAY),
}


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    """A provider of each test's own: it is left in the middle of a reply."""
    with ModelServer() as running:
        yield running


async def state(planning: Planning, run: str) -> str | None:
    """The state of a run in the index; None before it has an entry."""
    found = await status_of(planning.bus, run)
    return None if found is None else found.waits or found.status


async def listed(planning: Planning, run: str, wanted: str) -> None:
    async def found() -> bool:
        return await state(planning, run) == wanted

    await wait_until(found, what=f"the run is listed as {wanted}")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_is_listed_as_it_waits(plan: Plan, provider: ModelServer, kind: str) -> None:
    """As `waiting` or `paused`, then as `running`, at last with its end."""
    agent, limits, reply = KINDS[kind]
    planner = await plan(paying([]), agents={"default": agent})
    provider.say(*([reply] if reply else []), ENDLESS)
    run = await planner.ask("What?", limits=limits, session_id=new_id())
    [pause] = await planner.paused(run)
    await listed(planner, run, "paused" if limits else "waiting")
    if limits:
        await planner.top_up(run, max_tool_calls=5)
    else:
        decision = {"decision": "answer", "input": "This."} if reply is QUESTION else {"decision": "approve"}
        assert (await planner.decide(pause, run, **decision)).code is None
    await listed(planner, run, "running")
    await planner.cancel(run)
    await listed(planner, run, "cancelled")


async def test_a_run_that_is_cancelled_waits_no_more(plan: Plan, provider: ModelServer) -> None:
    """Nobody has decided about its call."""
    planner = await plan(paying([]))
    provider.say(PAY)
    run = await planner.ask()
    await listed(planner, run, "waiting")
    await planner.cancel(run)
    await listed(planner, run, "cancelled")


@pytest.mark.parametrize("becomes", ["waiting", "running"])
async def test_a_planner_killed_before_it_lists_what_it_has_recorded(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, tmp_path: Path, becomes: str
) -> None:
    """Another one handles the message again, and lists it."""
    url, agents = own_nats_server.url, tmp_path / "agents.json"
    agents.write_text(json.dumps({"default": {"followup": "pause"}}), encoding="utf-8")
    provider.say(QUESTION, ENDLESS, ENDLESS, ENDLESS)
    deciding = None
    if becomes == "running":
        async with planning(url, provider, agents_file=agents):
            run = await client.ask()
            await listed(client, run, "waiting")
    entry = f'"waits":{json.dumps(becomes if becomes == "waiting" else None)}'
    dying = DyingPlanner(url, provider.url, entry, "before", "$KV", agents_file=agents)
    if becomes == "running":
        [pause] = await client.paused(run)
        deciding = asyncio.create_task(client.decide(pause, run, "answer", input="This."))
    else:
        run = await client.ask()
    await dying.dead()
    assert await state(client, run) != becomes
    async with planning(url, provider, agents_file=agents):
        await listed(client, run, becomes)
        assert deciding is None or (await deciding).code is None
