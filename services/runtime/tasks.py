"""Background tasks of a service. None of them may die unnoticed.

Rule 1: a task that ends without being cancelled is logged with its error, and `/readyz` names it until the service is
restarted.
Rule 2: the log names the type of the error and where it was raised, not its text, which may contain user data.
"""

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

logger = structlog.get_logger(__name__)

_MAX_FRAMES = 5


class Tasks:
    """The background tasks of one process."""

    def __init__(self) -> None:
        self._kept: set[asyncio.Task[None]] = set()
        self._dead: dict[str, str] = {}

    def keep(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is meant to run until it is cancelled. `name` identifies it in problems and logs."""
        task = asyncio.create_task(work, name=name)
        self._kept.add(task)
        task.add_done_callback(self._on_end)
        return task

    def problems(self) -> list[str]:
        """Return a sentence for each task that has died."""
        return [f"background task {name} has died: {reason}" for name, reason in sorted(self._dead.items())]

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._kept.discard(task)
        if task.cancelling():
            return
        # A task can end as cancelled without a call of `cancel`, by a future that it shares.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        reason = "it came to an end" if error is None else type(error).__name__
        self._dead[task.get_name()] = reason
        logger.error(
            "background_task_died",
            task=task.get_name(),
            error=reason,
            places=code_locations(error) if error is not None else [],
        )


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


async def cancelled(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks, and return once they have ended."""
    found = [task for task in tasks if task is not None]
    for task in found:
        task.cancel()
    if found:
        await asyncio.wait(found)


def code_locations(error: BaseException) -> list[str]:
    """Return where an error was raised, as `file:line`, the innermost last.

    For logs: the error's text or a traceback may contain user data.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames][-_MAX_FRAMES:]
