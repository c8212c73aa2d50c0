"""Watches whether a handling still owns its model call: while the model sends nothing, no refused write would tell."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import structlog
from nats.aio.msg import Msg

from contracts.wire import subjects
from contracts.wire.records import types_in
from services.messaging.connection import Bus
from services.messaging.nats_connection import Subscription
from services.runtime.tasks import Later

logger = structlog.get_logger(__name__)

Tail = Callable[[], Awaitable[int | None]]
"""Returns the newest sequence of the log while this handling owns the call, else None."""
T = TypeVar("T")
WATCH_AFTER_S = 0.05
"""A faster reply needs no watch: a refused chunk gives the same information."""
EVENTS_THAT_END_A_CALL = frozenset(
    {"asked", "redelivered", "paused", "yielded", "stopping", "done", "error", "cancelled"}
)


class Address(NamedTuple):
    """The run of a message."""

    tenant: str
    run: str


class OwnershipWatch:
    """Calls `check` 50 ms after its construction, and again on each record that may end the call, until stopped."""

    def __init__(self, bus: Bus, address: Address, check: Callable[[], Awaitable[None]]) -> None:
        self._bus = bus
        self._subject = subjects.live_log(address.tenant, address.run)
        self._check = check
        self._subscription: Subscription | None = None
        self._stopped = False
        self._checking = Later(WATCH_AFTER_S, self._subscribe_and_check)

    async def stop(self) -> None:
        """Stop watching. A running check is cancelled, since it would wait while NATS is unavailable."""
        self._stopped = True
        self._checking.cancel()
        if self._subscription is not None:
            await self._subscription.stop()

    async def _subscribe_and_check(self) -> None:
        subscription = await self._bus.subscribe(self._subject, self._on_log)
        if self._stopped:
            await subscription.stop()
            return
        self._subscription = subscription
        # This check covers records from before the subscription: both use one connection, in order.
        await self._check()

    async def _on_log(self, message: Msg) -> None:
        if not EVENTS_THAT_END_A_CALL.isdisjoint(types_in(message.headers)):
            await self._check()


async def watched(bus: Bus, address: Address, tail: Tail, work: Coroutine[Any, Any, T]) -> T | None:
    """Do a short piece of work for a model call, or return None as soon as the call is superseded."""
    working = asyncio.create_task(work)
    superseded = False

    async def check() -> None:
        nonlocal superseded
        if await tail() is None:
            superseded = True
            working.cancel()

    watch = OwnershipWatch(bus, address, check)
    try:
        await asyncio.wait({working})
        return None if superseded else working.result()
    finally:
        working.cancel()
        await watch.stop()
        await asyncio.wait({working})
