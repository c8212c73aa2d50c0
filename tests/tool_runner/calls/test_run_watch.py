"""The end of a run reaches the work of its calls, whenever it comes."""

import asyncio

import pytest

from services.messaging.connection import Bus
from services.runtime.settings import BusSettings
from services.tool_runner.calls.run_watch import RunWatch, RunWatches
from services.tool_runner.errors import RunEnded


@pytest.fixture
async def watch() -> RunWatch:
    """A watch without a connection: tests end its run themselves."""
    return RunWatches(Bus("tests", BusSettings())).watch("default", "run")


async def test_work_is_stopped_when_the_run_ends(watch: RunWatch) -> None:
    """It raises RunEnded, and so does all later work."""
    with watch:
        working = asyncio.create_task(watch.unless_ended(asyncio.sleep(60)))
        await asyncio.sleep(0)
        watch.notify()
        with pytest.raises(RunEnded):
            await working
        with pytest.raises(RunEnded):
            await watch.unless_ended(asyncio.sleep(60))


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


async def test_a_cancelled_call_is_no_ended_run(watch: RunWatch) -> None:
    """A service that stops cancels its calls."""
    with watch:
        working = asyncio.create_task(watch.unless_ended(asyncio.sleep(60)))
        await asyncio.sleep(0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
