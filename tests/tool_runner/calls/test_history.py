"""Which handling may call a non-idempotent tool, when several handlings of a call exist."""

import asyncio
from typing import Any

import pytest

from contracts.runs.events import CallStarted, ToolProgress
from contracts.tools.messages import CallRequested
from contracts.wire import subjects
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.runtime.settings import BusSettings
from services.tool_runner.calls import history
from services.tool_runner.calls.history import RunWatch, RunWatches
from services.tool_runner.errors import RunEnded
from tests.tool_runner.conftest import Planner


@pytest.fixture
async def delivery(planner: Planner) -> Any:
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
    """Claim a call; True if no other handling had started it."""
    return await history.claim(planner.bus, delivery, call_of(delivery, call_id).model_copy(update=changed)) is None


@pytest.mark.parametrize("again", [False, True])
async def test_one_of_many_handlings_may_call_the_tool(
    planner: Planner,
    delivery: Delivery,
    again: bool,  # noqa: FBT001
) -> None:
    """The one whose `call_started` is stored first; other calls of the run do not matter."""
    assert await claim(planner, delivery, "1-1")
    claims = await asyncio.gather(*(claim(planner, delivery, again=again) for _ in range(8)))
    assert sorted(claims) == [False] * 7 + [True]
    assert not await claim(planner, delivery, "1-1", again=again)


async def test_a_start_counts_after_the_stream_has_forgotten_its_message_id(
    planner: Planner, delivery: Delivery
) -> None:
    """A process that was suspended for a minute records the start again; the first record still counts."""
    call = call_of(delivery)
    run = call.run_id
    await planner.show(run, ToolProgress(call_id=call.call_id, tool=call.tool))
    await planner.show(run, CallStarted(call_id="1-1", tool=call.tool))
    await planner.show(run, CallStarted(call_id=call.call_id, tool=call.tool))
    assert not await claim(planner, delivery)


@pytest.fixture
async def watch() -> RunWatch:
    """A watch without a connection: tests end its run themselves."""
    return RunWatches(Bus("tests", BusSettings())).watch("default", "run")


@pytest.mark.parametrize(("ends", "error"), [(True, RunEnded), (False, asyncio.CancelledError)])
async def test_work_is_stopped_when_the_run_or_the_service_ends(
    watch: RunWatch, *, ends: bool, error: type[BaseException]
) -> None:
    """A service that stops cancels its calls: that is no ended run."""
    with watch:
        working = asyncio.create_task(watch.unless_ended(asyncio.sleep(60)))
        await asyncio.sleep(0)
        (watch.notify if ends else working.cancel)()
        with pytest.raises(error):
            await working


async def test_callbacks_come_once_and_only_inside_their_block(watch: RunWatch) -> None:
    """At once for a run that has ended before."""
    ends: list[str] = []
    with watch:
        with watch.on_end(lambda: ends.append("closed")):
            pass
        with watch.on_end(lambda: ends.append("open")):
            watch.notify()
        with watch.on_end(lambda: ends.append("late")):
            pass
    assert ends == ["open", "late"]
