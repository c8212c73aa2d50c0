"""A process that was stopped notices it, and reads its backlog before it starts anything."""

import asyncio
import signal
import time
from pathlib import Path

import pytest
from nats.aio.client import Client

from contracts.wire.names import new_id
from runwire.serving import connection
from runwire.serving.connection import STALL_S, StallDetector
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

from .conftest import asking, call, seen, start_process


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connection, "time", clock)
    return clock


@pytest.mark.parametrize("tick_first", [True, False])
def test_a_stall_is_noticed_for_a_while(clock: Clock, *, tick_first: bool) -> None:
    """By the next tick or by a request before it. A tick that is a little late is none."""
    detector = StallDetector()
    clock.now += STALL_S * 0.9
    detector.tick()
    assert not detector.just_resumed
    clock.now += STALL_S * 2
    if tick_first:
        detector.tick()
    assert detector.just_resumed
    clock.now += STALL_S * 0.5
    detector.tick()
    assert detector.just_resumed
    clock.now += STALL_S * 0.6
    assert not detector.just_resumed


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


STOPPING = """
import os, signal
from typing import Annotated
from pydantic import AfterValidator
from runwire import tool

begun, checks = [], []

def stop_once(text):
    checks.append(text)
    if checks.count(text) == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return text

@tool(name="plain_{suffix}")
def plain(text: Annotated[str, AfterValidator(stop_once)]) -> int:
    begun.append(text)
    return begun.count(text)

@tool(name="coroutine_{suffix}")
async def coroutine(text: Annotated[str, AfterValidator(stop_once)]) -> int:
    return plain(text)
"""


async def test_a_process_that_was_stopped_before_the_function_begins_does_not_begin_it_late(
    client: Client, nats_server: NatsServer, tmp_path: Path
) -> None:
    """It had accepted the call and said nothing yet, so that its caller has called another instance by then."""
    suffix = new_id()[-8:]
    (tmp_path / "my_tools.py").write_text(STOPPING.replace("{suffix}", suffix))
    process = start_process(tmp_path / "my_tools.py", nats_server.url)
    try:
        stat = Path(f"/proc/{process.pid}/stat")
        for name in (f"plain_{suffix}", f"coroutine_{suffix}"):
            await seen(client, name)
            start_by = int(time.time() * 1000) + 1000
            caller = await asking(client, name, {"text": name}, "k", start_by=start_by, understands_declined=True)
            await wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what="it has stopped")
            await asyncio.sleep(max(0.0, start_by / 1000 - time.time()) + 0.01)

            process.send_signal(signal.SIGCONT)

            assert await caller.end() == ("declined", {"reason": "late"})
            assert caller.kinds() == ["declined"]
            assert await call(client, name, {"text": name}, key="k") == ("result", 1)
    finally:
        process.kill()
        process.wait()
