"""A process that was stopped knows it afterwards, and reads on before it believes what it finds."""

import asyncio
import time

import pytest

from runwire.serving import stall
from runwire.serving.stall import STALL_S, Waking


class Clock:
    """Stands still until it is told to go on, as a stopped process's does for the process."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What `waking` takes the time from."""
    clock = Clock()
    monkeypatch.setattr(stall, "time", clock)
    return clock


def test_a_process_that_ticks_did_not_just_wake(clock: Clock) -> None:
    """Ticks come every half second; what delays one a little proves nothing."""
    awake = Waking()
    for _ in range(10):
        clock.now += STALL_S * 0.9
        awake.tick()
        assert not awake.just_woke


def test_whoever_looks_first_notices_a_gap(clock: Clock) -> None:
    """A request may be handled before the next tick; the doubt passes after a while."""
    awake = Waking()
    clock.now += STALL_S * 2
    assert awake.just_woke
    clock.now += STALL_S * 0.5
    awake.tick()
    assert awake.just_woke
    clock.now += STALL_S * 0.6
    assert not awake.just_woke


def test_a_tick_before_the_request_hides_nothing(clock: Clock) -> None:
    """The gap is remembered when the tick comes first."""
    awake = Waking()
    clock.now += STALL_S * 5
    awake.tick()
    assert awake.just_woke


async def test_reading_on_takes_a_moment_after_waking_only(clock: Clock) -> None:
    """Once the socket has been read nobody waits any more."""
    awake = Waking()
    async with asyncio.timeout(0.1):
        await awake.read_on()
    clock.now += STALL_S * 2
    assert awake.just_woke
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await awake.read_on()
