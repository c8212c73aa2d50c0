"""A planner dies with a message in hand: the other one gets it at once. One that is only silent keeps its own."""

from collections.abc import Iterator
from functools import partial

import pytest

from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.client import Client
from tests.system.model import Plan
from tests.system.sound import judged_sound
from tests.system.strikes import Strike, dies_after, for_one_test
from tests.system.system import System, planned
from tests.system.traces import RunEvidence

_ACK_WAIT = {"RUNWIRE_ACK_WAIT_S": "20"}
"""So long that no planner loses a message by it in these tests, whatever else the machine does."""


@pytest.fixture(scope="module")
def tapped_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Two of everything, and a tap on each planner."""
    with planned(tmp_path_factory.mktemp("held"), tapped=True, env=_ACK_WAIT) as system:
        yield system


@pytest.fixture
def system(tapped_system: System) -> Iterator[System]:
    with for_one_test(tapped_system) as found:
        yield found


async def _held(system: System, client: Client, plan: Plan) -> tuple[RunEvidence, str]:
    """A run whose planner calls the model, and has listed the request that it holds."""
    listed = set[str]()

    def note(name: str, subject: str, body: bytes) -> bool:
        listed.update({name} if subject.startswith("held.") and b"REQUESTS" in body else ())
        return True

    for name in system.stack.names("planner"):
        system.taps[name].on_publish = partial(note, name)
    run = RunEvidence(await client.ask(plan.query, key=plan.nth))
    await wait_until(lambda: system.model.asked(plan), what="the model is asked")
    planner = system.planner_of(system.model.asked(plan)[0].headers["authorization"])
    await wait_until(lambda: planner in listed, timeout=20, what="the planner has listed the request")
    return run, planner


def _deaths_found(system: System) -> int:
    return sum(system.stack.tail_of(name).count("killed_planner_found") for name in system.stack.names("planner"))


async def _ends(client: Client, bus: Bus, system: System, run: RunEvidence) -> list[str]:
    """Follow a run to its answer, and return the types of its events."""
    assert (await client.follow(run.run_id, run.seen))["type"] == "done"
    await judged_sound(bus, system, run)
    return [event["type"] for event in run.log]


@pytest.mark.sample(1)
@pytest.mark.parametrize("calls_tool", [False, True], ids=["model", "tool"])
async def test_the_other_planner_gets_what_a_killed_one_held(
    *, calls_tool: bool, system: System, client: Client, bus: Bus
) -> None:
    """It dies in a call of the model, or in a direct call of a tool."""
    plan = Plan(turns=(("once",),) if calls_tool else (), call_ms=500, delay_ms=4000, nth=new_id())
    run, planner = await _held(system, client, plan)
    before = _deaths_found(system)
    if calls_tool:
        strike = Strike(system, "planner", lambda subject, _: subject.endswith(".call"), dies_after)
        assert await strike.struck() == planner
    else:
        system.stack.kill(planner)
    assert (await _ends(client, bus, system, run)).count("redelivered") == 1
    assert _deaths_found(system) == before + 1


async def test_a_planner_that_is_silent_and_lives_keeps_what_it_holds(system: System, client: Client, bus: Bus) -> None:
    """Twice in one answer it stands still, each time until the other one has asked for it."""
    plan = Plan(tokens=300, pace_ms=50, nth=new_id())
    run, planner = await _held(system, client, plan)
    before, asked = _deaths_found(system), list[str]()

    def note(subject: str, _: bytes) -> bool:
        asked.extend([subject] if subject.startswith("here.") else ())
        return True

    for name in system.stack.names("planner"):
        system.taps[name].on_publish = note
    for _ in range(2):
        system.stack.freeze(planner)
        asked.clear()
        await wait_until(asked.copy, timeout=20, what="the planner is asked for")
        system.stack.thaw(planner)
    assert "redelivered" not in await _ends(client, bus, system, run)
    assert _deaths_found(system) == before
