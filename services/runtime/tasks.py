"""Background tasks of a service. None of them ends unnoticed, or for good.

Rule 1: a task that ends without being cancelled is logged with its error and begins anew, after a pause that doubles.
`/readyz` names it until it has gone on for a while.
Rule 2: the log names the type of the error and where it was raised, not its text, which may contain user data.
"""

import asyncio
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import structlog

logger = structlog.get_logger(__name__)

Result = TypeVar("Result")

_MAX_FRAMES = 5
_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0
_SETTLED_S = 10.0


class Tasks:
    """The background tasks of one process."""

    def __init__(self) -> None:
        self._kept: set[asyncio.Task[None]] = set()
        self._failed: dict[str, str] = {}

    def keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Do work that goes on until it is cancelled. `name` identifies it in problems and logs."""
        task = start_in(self._kept, self._repeat(name, work))
        task.set_name(name)
        return task

    def problems(self) -> list[str]:
        """Return a sentence for each task that has ended by itself a short while ago."""
        return [f"background task {name} has failed: {reason}" for name, reason in sorted(self._failed.items())]

    async def _repeat(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        pause_s, me = _FIRST_PAUSE_S, asyncio.current_task()
        while True:
            began = time.monotonic()
            settled = asyncio.get_running_loop().call_later(_SETTLED_S, self._failed.pop, name, None)
            reason, places = "it came to an end", []
            try:
                await work()
            except (Exception, asyncio.CancelledError) as error:
                # A task can end as cancelled without a call of `cancel`, by a future that it shares.
                if me is not None and me.cancelling():
                    raise
                reason, places = type(error).__name__, code_locations(error)
            finally:
                settled.cancel()
            self._failed[name] = reason
            logger.error("background_task_failed", task=name, error=reason, places=places)
            if time.monotonic() - began > _SETTLED_S:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)


def start_in(tasks: set[asyncio.Task[Result]], work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """Start a task that `tasks` holds until it ends: the event loop keeps no task alive by itself."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


class Later:
    """Work that begins in so many seconds, unless it is cancelled before. Until then it is a timer, and no task."""

    def __init__(self, seconds: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def cancel(self) -> None:
        """End it, or let it never begin."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._work())


async def every(
    pause_s: float,
    work: Callable[[], Awaitable[object]],
    failures: tuple[type[Exception], ...],
    log_key: str,
    retry_s: float | None = None,
) -> None:
    """Do a piece of upkeep, again about `pause_s` seconds after each end, until cancelled.

    One of `failures` is logged as a warning `log_key`, and the work is repeated after `retry_s`, by default `pause_s`.
    The pauses vary by a tenth, so that instances do not work at the same moments.
    """
    while True:
        wait_s = pause_s
        try:
            await work()
        except failures as error:
            logger.warning(log_key, error=str(error))
            wait_s = retry_s or pause_s
        await asyncio.sleep(wait_s * random.uniform(0.9, 1.1))  # noqa: S311, a spread, not a secret


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, so many seconds at most, and return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False


async def cancelled(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks, and return once they have ended."""
    found = [task for task in tasks if task is not None]
    for task in found:
        task.cancel()
    if found:
        await asyncio.wait(found)


def code_locations(error: BaseException) -> list[str]:
    """Return where an error was raised, as `file:line`, the innermost last: its text may contain user data."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames][-_MAX_FRAMES:]
