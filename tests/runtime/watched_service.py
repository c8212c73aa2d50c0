"""A service that can block its own event loop: `python -m tests.runtime.watched_service`.

A message on `hold.<how>` makes its handler do that: `sleep` (outside Python's lock), `spin` (in Python), `match` (a
regular expression, which holds Python's lock, so that no thread of the process runs). The text of the message is a
number of seconds, or of characters. A message on `die` ends a background task with an error.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nats.aio.msg import Msg

from services.messaging.connection import Bus
from services.messaging.nats_link import run_on_nats
from services.runtime.health import Health
from services.runtime.settings import BusSettings, read_settings

SECRET = "hunter2"


def hold_by_sleeping(seconds: float, secret: str) -> None:
    """Hold the loop without using the processor."""
    assert secret
    time.sleep(seconds)


def hold_by_spinning(seconds: float) -> None:
    """Hold the loop in Python's own code."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def hold_by_matching(characters: float) -> None:
    """Hold the loop, and every other thread, in one call of C code."""
    re.fullmatch("(a+)+b", "a" * int(characters))


async def _mortal(end: asyncio.Event) -> None:
    await end.wait()
    end.clear()
    raise KeyError(SECRET)


@asynccontextmanager
async def work(bus: Bus, _health: Health) -> AsyncIterator[None]:
    end = asyncio.Event()
    task = bus.tasks.keep("mortal", lambda: _mortal(end))

    async def on_message(message: Msg) -> None:
        match message.subject:
            case "hold.sleep":
                hold_by_sleeping(float(message.data), SECRET)
            case "hold.spin":
                hold_by_spinning(float(message.data))
            case "hold.match":
                hold_by_matching(float(message.data))
            case "die":
                end.set()

    for subject in ("hold.*", "die"):
        await bus.nc.subscribe(subject, cb=on_message)
    yield
    task.cancel()


if __name__ == "__main__":
    run_on_nats("watched", read_settings(BusSettings), work)
