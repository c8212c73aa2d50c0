"""The index of runs is derived from the logs, over a real server."""

import asyncio

import pytest

from contracts.runs.events import Cancelled, Paused, RunStarted
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunLimits, RunRequested, RunStatus
from contracts.wire import keys
from contracts.wire.names import new_id, unix_ms
from services.messaging.connection import Bus
from services.planner.effects import bookkeeping
from services.planner.logs import index
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run


def started() -> RunStarted:
    request = RunRequested(run_id=new_id(), tenant="default", requested_at=unix_ms(), trace_id="t", query="q" * 500)
    return RunStarted(run_id=request.run_id, tenant="default", request=request, limits=RunLimits())


def folded(opening: RunStarted, ended_at: int | None = None) -> Run:
    run = Run()
    fold(run, 1, opening.request.requested_at, [opening])
    if ended_at is not None:
        fold(run, 2, ended_at, [Cancelled(payload=FinalPayload(raw_answer=""))])
    return run


async def unread() -> Run:
    """For a run that was not queued."""
    raise AssertionError


async def entry(bus: Bus, opening: RunStarted) -> RunStatus:
    key = keys.run_key("default", opening.request.requested_at, opening.run_id)
    found = await bus.last("KV_runs", f"$KV.runs.{key}")
    assert found is not None
    return RunStatus.model_validate_json(found.data)


async def test_an_ended_run_is_never_shown_as_running_again(bus: Bus) -> None:
    """A late writer of `running` finds the key taken."""
    opening = started()
    await bookkeeping.enter(bus, folded(opening), opening.request, unread)
    first = await entry(bus, opening)
    assert (first.status, len(first.query)) == ("running", 200)
    await bookkeeping.close(
        bus, folded(opening, ended_at=opening.request.requested_at + 5), opening.request, has_timers=True
    )
    await bookkeeping.enter(bus, folded(opening), opening.request, unread)
    last = await entry(bus, opening)
    assert last.status == "cancelled"


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_stopped_process_lists_nothing_outdated(bus: Bus, *, has_ended: bool) -> None:
    """It knew that a run waits, and meanwhile another process listed it as `running` again, or as ended."""
    opening = started()
    request, running, waiting = opening.request, folded(opening), folded(opening)
    ended = folded(opening, ended_at=request.requested_at + 5)
    fold(waiting, 2, 1, [Paused(pause_id="1", reason="approval", until=9)])
    await index.create_run(bus, running, request)
    reads = [ended if has_ended else running, waiting]

    async def stopped() -> Run:
        if len(reads) > 1 and has_ended:
            await bookkeeping.close(bus, ended, request, has_timers=False)
        elif len(reads) > 1:
            await index.rewrite_run(bus, request, lambda: asyncio.sleep(0, running))
        return reads.pop()

    await index.rewrite_run(bus, request, stopped)
    last = await entry(bus, opening)
    assert (last.status, reads) == ("cancelled" if has_ended else "running", [])
