"""A run can be stopped by a person and by a budget. Either way it ends once, with a payload."""

import asyncio
import time

from runwire import Client


async def _until(client: Client, run_id: str, kind: str) -> None:
    async for event in client.follow(run_id):
        if event.type == kind:
            return


async def test_cancel_ends_a_run_at_once(client: Client) -> None:
    """Also while a tool works; nothing is called afterwards."""
    run_id = await client.start("Take a nap of 50 seconds")
    await _until(client, run_id, "tool_progress")
    began = time.monotonic()
    await client.cancel(run_id, "had enough")
    run = await client.result(run_id)

    assert run.status == "cancelled"
    assert run.payload is not None
    assert time.monotonic() - began < 5


async def test_a_deadline_ends_a_run_with_what_there_is(client: Client) -> None:
    """What ran out is named in the warnings; the route says that the answer is partial."""
    run_id = await client.start("Take a nap of 50 seconds", limits={"deadline_s": 1})
    run = await asyncio.wait_for(client.result(run_id), 20)

    assert (run.status, run.reason) == ("done", "budget_exhausted")
    assert run.payload is not None
    assert run.payload.route == "partial"
    assert any("deadline_s" in warning for warning in run.payload.warnings)
