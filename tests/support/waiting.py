"""Waiting for conditions, never for time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

#: Seconds between two looks at a condition.
PAUSE = 0.01


@overload
async def wait_until(predicate: Callable[[], Awaitable[T]], *, timeout: float = 30, what: str) -> T: ...
@overload
async def wait_until(predicate: Callable[[], T], *, timeout: float = 30, what: str) -> T: ...
async def wait_until(predicate: Callable[[], Any], *, timeout: float = 30, what: str) -> Any:
    """Look at `predicate`, a plain or an async function, until it gives something true, and return that.

    Args:
        predicate: is called again and again; what it raises ends the wait.
        timeout: seconds; the last look is taken after they are over, so a slow machine gets its chance.
        what: names the condition in the failure, as in "the run ended".

    Raises:
        AssertionError: the condition did not come true in time; it names `what` and the last value.
    """
    deadline = time.monotonic() + timeout
    while True:
        last = time.monotonic() >= deadline
        value = predicate()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if last:
            raise AssertionError(_failure(what, timeout, value))
        await asyncio.sleep(PAUSE)


def wait_until_blocking(predicate: Callable[[], T], *, timeout: float = 30, what: str) -> T:
    """The same for code outside an event loop."""
    deadline = time.monotonic() + timeout
    while True:
        last = time.monotonic() >= deadline
        value = predicate()
        if value:
            return value
        if last:
            raise AssertionError(_failure(what, timeout, value))
        time.sleep(PAUSE)


def _failure(what: str, timeout: float, value: object) -> str:
    return f"waited {timeout:g} s in vain until {what}; last seen: {value!r}"
