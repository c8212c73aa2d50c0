"""A process that was stopped notices it, and reads its backlog before it starts anything."""

import asyncio
import time

import pytest

from runwire.serving import stall
from runwire.serving.stall import STALL_S, StallDetector


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of `stall`."""
    clock = Clock()
    monkeypatch.setattr(stall, "time", clock)
    return clock


def test_a_late_tick_is_no_stall(clock: Clock) -> None:
    """Ticks come every half second; one may be a little late."""
    detector = StallDetector()
    for _ in range(10):
        clock.now += STALL_S * 0.9
        detector.tick()
        assert not detector.just_resumed


def test_a_request_notices_a_stall_before_the_next_tick(clock: Clock) -> None:
    """After a while requests count as new again."""
    detector = StallDetector()
    clock.now += STALL_S * 2
    assert detector.just_resumed
    clock.now += STALL_S * 0.5
    detector.tick()
    assert detector.just_resumed
    clock.now += STALL_S * 0.6
    assert not detector.just_resumed


def test_a_tick_before_the_request_hides_nothing(clock: Clock) -> None:
    """The stall is remembered when the tick comes first."""
    detector = StallDetector()
    clock.now += STALL_S * 5
    detector.tick()
    assert detector.just_resumed


async def test_the_backlog_is_read_after_a_stall_only(clock: Clock) -> None:
    """Without a stall nothing waits."""
    detector = StallDetector()
    async with asyncio.timeout(0.1):
        await detector.read_backlog()
    clock.now += STALL_S * 2
    assert detector.just_resumed
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await detector.read_backlog()
