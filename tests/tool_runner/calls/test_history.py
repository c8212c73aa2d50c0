"""Who may ask a tool that is not safe to ask twice, when several believe that they may."""

import asyncio
from typing import Any

import pytest

from contracts import subjects
from contracts.events import CallStarted, ToolProgress
from contracts.tools import CallRequested
from services.messaging.pull_consumer import Delivery
from services.tool_runner.calls import history
from tests.tool_runner.conftest import Planner


@pytest.fixture
async def delivery(planner: Planner) -> Any:
    """A call of a tool, delivered to nobody in particular."""
    run = await planner.request("anvil", {}, spec="0" * 24)
    await planner.request("anvil", {}, run=run, call_id="1-1", spec="0" * 24)
    pull = await planner.bus.nc.jetstream().pull_subscribe(
        subjects.call("default", run, "anvil"), stream=subjects.CALLS
    )
    (message, _) = await pull.fetch(2)
    yield Delivery(message)
    await planner.bus.api(f"STREAM.PURGE.{subjects.CALLS}", {})
    await pull.unsubscribe()


def call_of(delivery: Delivery, call_id: str = "1-0") -> CallRequested:
    """The call in a message, or its neighbour."""
    return CallRequested.model_validate_json(delivery.data).model_copy(update={"call_id": call_id})


async def claim(planner: Planner, delivery: Delivery, call_id: str = "1-0", **changed: Any) -> bool:
    """Claim a call; true where nobody had begun it before."""
    return await history.claim(planner.bus, delivery, call_of(delivery, call_id).model_copy(update=changed)) is None


@pytest.mark.parametrize("again", [False, True])
async def test_of_many_one_may_ask(planner: Planner, delivery: Delivery, again: bool) -> None:  # noqa: FBT001, a parameter
    """Whoever's intent is stored first; calls beside it do not matter."""
    assert await claim(planner, delivery, "1-1")
    claims = await asyncio.gather(*(claim(planner, delivery, again=again) for _ in range(8)))
    assert sorted(claims) == [False] * 7 + [True]
    assert not await claim(planner, delivery, "1-1", again=again)


async def test_an_intent_counts_after_the_stream_has_forgotten_its_id(planner: Planner, delivery: Delivery) -> None:
    """A process that was stopped for a minute writes its intent a second time; the first one still counts."""
    call = call_of(delivery)
    run = call.run_id
    await planner.show(run, ToolProgress(call_id=call.call_id, tool=call.tool))
    await planner.show(run, CallStarted(call_id="1-1", tool=call.tool))
    await planner.show(run, CallStarted(call_id=call.call_id, tool=call.tool))
    assert not await claim(planner, delivery)


async def test_a_run_of_which_nothing_is_stored_has_ended(planner: Planner, delivery: Delivery) -> None:
    """Finished runs are purged; one that never was cannot have asked."""
    call = call_of(delivery)
    assert not await history.run_ended(planner.bus, call)
    assert await history.run_ended(planner.bus, call.model_copy(update={"run_id": "0" * 32}))
    await planner.end_run(call.run_id)
    assert await history.run_ended(planner.bus, call)
