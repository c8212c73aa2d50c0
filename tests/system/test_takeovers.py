"""A direct call is taken over while the planner that made it goes on, and then that planner dies."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.nats_tap import pass_on
from tests.support.waiting import wait_until
from tests.system.client import Client
from tests.system.model import Plan
from tests.system.sound import judged_sound
from tests.system.strikes import for_one_test, mended
from tests.system.system import System, planned
from tests.system.traces import RunEvidence, planned_calls

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

_SLOTS = {"RUNWIRE_PLANNER_REQUEST_SLOTS": "2"}
"""A planner that works on two requests gets none of them again."""
_DELAY_MS = 8000
"""Before each reply of the model: the second planner starts meanwhile."""
PLANS = {
    "react": Plan(turns=(("once",), ("often",)), call_ms=700, delay_ms=_DELAY_MS),
    "planned": Plan(strategy="planned", turns=(("once",), ("often",)), call_ms=700, delay_ms=_DELAY_MS),
}


@pytest.fixture(scope="module")
def tapped_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Two of everything, and a tap on each planner and tool runner."""
    with planned(tmp_path_factory.mktemp("takeovers"), tapped=True, env=_SLOTS) as system:
        yield system


@pytest.fixture
def system(tapped_system: System) -> Iterator[System]:
    with for_one_test(tapped_system) as found:
        yield found


async def is_delivered_again(bus: Bus) -> bool:
    """Whether a request is."""
    answer = await bus.api(f"CONSUMER.LIST.{subjects.REQUESTS}", {})
    return any(each["num_redelivered"] for each in answer["consumers"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("strategy", PLANS)
async def test_the_run_goes_on(strategy: str, system: System, client: Client, bus: Bus) -> None:
    """Two handlings of its request are at work. The later one acknowledges it, so the earlier one must not go on."""
    await mended(system)
    plan, stack, taps = replace(PLANS[strategy], nth=new_id()), system.stack, system.taps
    first, second = stack.names("planner")
    stack.kill(second)
    other = await client.ask(Plan(delay_ms=2 * _DELAY_MS).query, key=new_id())
    run = RunEvidence(await client.ask(plan.query, key=plan.nth, **plan.request), script=plan)
    await wait_until(lambda: system.model.asked(plan), what="the model is asked")
    await mended(system)
    stack.freeze(first)
    stack.freeze(second)
    await wait_until(partial(is_delivered_again, bus), what="the request is delivered to the other planner, too")
    acknowledged = threading.Event()

    def thaws_the_second(subject: str, _body: bytes) -> bool:
        if subject.startswith("direct."):
            stack.thaw(second)
        return True

    def stops_when_done(subject: str, body: bytes) -> bool:
        if subject.startswith("$JS.ACK.REQUESTS.") and body.startswith(b"+ACK"):
            stack.freeze(second)
            acknowledged.set()
        return True

    taps[first].on_publish, taps[second].on_publish = thaws_the_second, stops_when_done
    stack.thaw(first)
    await wait_until(acknowledged.is_set, what="the request is acknowledged")
    with suppress(AssertionError):  # It waits for the other planner, which has the outcome.
        await wait_until(lambda: len(system.model.asked(plan)) > 1, timeout=3, what="the first planner goes on")
    stack.kill(first)
    taps[first].on_publish = taps[second].on_publish = pass_on
    stack.thaw(second)
    async with asyncio.timeout(40):
        assert (await client.follow(run.run_id, run.seen))["type"] == "done"
        await client.follow(other, [])
    await judged_sound(bus, system, run)
    made, again = [call for _, call in planned_calls(run)][:2]
    assert again == {**made, "direct": None}
    assert made["direct"] is not None
