"""In a session one run at a time has the turn, and nothing happens without its approval, whatever is killed.

Set TEST_SEED to repeat a storm's choices.
"""

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import chaos
from tests.system.conversations.model import NewestPlanModel
from tests.system.conversations.storm import Talk, hold, judged
from tests.system.plan_rules import plans_of
from tests.system.system import System, planned
from tests.system.traces import end_of

pytestmark = [pytest.mark.system]
_TOOLS = Path(__file__).parent / "tools.py"


@pytest.fixture(scope="module")
def conversation_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Two copies of everything, with tools that wait for people."""
    with planned(tmp_path_factory.mktemp("talk"), gateways=2, tools=_TOOLS, model=NewestPlanModel) as system:
        yield system
        assert system.nats.violations() == []


@pytest.mark.timeout(300)
async def test_a_short_storm_breaks_no_promise(conversation_system: System) -> None:
    """Twenty-four requests in six sessions, eight blows on processes and one on the server."""
    await _survive(24, 6, 9, 1, conversation_system)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_a_long_storm_breaks_no_promise(conversation_system: System) -> None:
    """Two hundred requests in twenty-five sessions, a hundred blows and more, five of them on the server."""
    await _survive(200, 25, 120, 5, conversation_system)


async def _survive(runs: int, sessions: int, blows: int, server_kills: int, system: System) -> None:
    seed = int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    storm = chaos.Storm(runs=runs, blows=blows, server_kills=server_kills, seed=seed)
    with system.stack.showing_logs():
        talk = await hold(storm, system, sessions=sessions)
        complaints = await judged(talk)
        report = _summary(talk, complaints)
        sys.stdout.write(report + "\n")
        assert not complaints, report


def _summary(talk: Talk, complaints: dict[str, list[str]]) -> str:
    ends: Counter[str] = Counter()
    for run in talk.found.of_runs.runs:
        end = end_of(run)
        ends["none" if end is None else str(end[1].get("route") or end[1].get("code") or end[1]["type"])] += 1
    plans: Counter[str] = Counter()
    for run in talk.found.of_runs.runs:
        for plan in plans_of(run):
            plans[str(plan.ends[0]["statuses"] if plan.ends else plan.step["status"])] += 1
    said = {
        "seed": talk.storm.seed,
        "runs": len(talk.found.of_runs.runs),
        "ends": dict(ends),
        "plans": dict(plans),
        "decisions": dict(Counter(f"{each.decision} {each.status}" for each in talk.found.decisions)),
        "inputs": dict(Counter(each.status for each in talk.found.inputs)),
        "executions": len(talk.found.of_runs.executions),
        "blows": dict(talk.session.blows),
        "complaints": complaints,
    }
    return json.dumps(said, indent=1)
