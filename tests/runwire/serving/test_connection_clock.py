"""A tool whose machine has another clock than its callers. Its requests carry times that are an hour off."""

import asyncio
import time

import pytest
from nats.aio.client import Client

from runwire import ToolContext, tool
from tests.runwire.serving.conftest import Serve, call


@pytest.mark.parametrize("off_s", [-3600, 3600])
async def test_calls_start_and_end_in_time_whatever_the_clock_shows(off_s: int, client: Client, serving: Serve) -> None:
    """`off_s`: how far the caller's clock is from this one. An old request is declined by either."""

    @tool(name=f"clocked{off_s}".replace("-", "_"))
    async def clocked(ctx: ToolContext, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return ctx.deadline_at / 1000 - time.time()

    async def ask(key: str, seconds: float = 0, age_s: float = 0, until_s: float = 60) -> tuple[str, object]:
        sent = int((time.time() + off_s - age_s) * 1000)
        times = {"sent_at": sent, "start_by": sent + 10_000, "deadline_at": sent + int(until_s * 1000)}
        return await call(client, clocked.name, {"seconds": seconds}, key=key, understands_declined=True, **times)

    await serving(clocked)
    kind, left_s = await ask("first")
    if kind == "declined":  # This clock is ahead, or the request is old. The repetition says which.
        assert off_s < 0
        kind, left_s = await ask("first")
    assert kind == "result"
    assert isinstance(left_s, float)
    assert 50 < left_s < 61
    assert (await ask("second"))[0] == "result"
    assert await ask("old", age_s=30) == ("declined", {"reason": "late"})
    assert (await ask("third"))[0] == "result"
    kind, failure = await ask("long", seconds=60, until_s=0.4)
    assert (kind, isinstance(failure, dict) and failure["code"]) == ("failure", "deadline_passed")
