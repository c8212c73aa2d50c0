"""Notice the end of a run while its calls are in progress.

Rule 1: a run is watched only during long calls, with one subscription per run that its calls share.
Rule 2: after subscribing, and after a reconnect, the last record of the log is read: an earlier end is not announced
again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Self, TypeVar

from nats.aio.msg import Msg

from contracts.runs.events import TERMINAL
from contracts.wire import subjects
from contracts.wire.records import types_in
from services.messaging.connection import Bus
from services.messaging.errors import Unavailable
from services.messaging.nats_connection import Subscription
from services.shared.runs.last_record import last_record
from services.tool_runner.errors import RunEnded

OnEnd = Callable[[], object]
T = TypeVar("T")

_SUBSCRIBE_AFTER_S = 0.1
"""Shorter calls are not worth a subscription."""


def is_terminal(headers: dict[str, str] | None) -> bool:
    """Return whether a record ends its run, from its headers."""
    return not TERMINAL.isdisjoint(types_in(headers))


class RunWatch:
    """One call's watch of its run, as a context manager."""

    def __init__(self, watches: "RunWatches", tenant: str, run: str) -> None:
        self.run = (tenant, run)
        self.has_ended = False
        self._watches = watches
        self._callbacks: list[OnEnd] = []
        self._timer = asyncio.get_running_loop().call_later(_SUBSCRIBE_AFTER_S, watches.begin, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._timer.cancel()
        self._watches.end(self)

    def notify(self) -> None:
        """Note that the run has ended."""
        self.has_ended = True
        for callback in self._callbacks:
            callback()

    @contextmanager
    def on_end(self, callback: OnEnd) -> Iterator[None]:
        """Call back when the run ends, at once if it has ended."""
        if self.has_ended:
            callback()
        self._callbacks.append(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    async def unless_ended(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raises RunEnded as soon as the run ends."""
        task = asyncio.ensure_future(work)
        with self.on_end(task.cancel):
            try:
                return await task
            except asyncio.CancelledError:
                if self.has_ended:
                    raise RunEnded from None
                raise
            finally:
                task.cancel()


class RunWatches:
    """The watched runs of this process."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._watching: dict[tuple[str, str], list[RunWatch]] = {}
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._tasks: set[asyncio.Task[None]] = set()

        async def on_reconnect() -> None:
            for run in self._watching:
                self._spawn(self._check(run))

        bus.on_reconnect.append(on_reconnect)

    def watch(self, tenant: str, run: str) -> RunWatch:
        """Watch a run until the context ends."""
        return RunWatch(self, tenant, run)

    def begin(self, watch: RunWatch) -> None:
        """Subscribe to the run of a call that takes long."""
        watches = self._watching.setdefault(watch.run, [])
        watches.append(watch)
        self._spawn(self._subscribe(watch.run) if len(watches) == 1 else self._check(watch.run))

    def end(self, watch: RunWatch) -> None:
        """Stop watching for this call."""
        watches = self._watching.get(watch.run)
        if watches is None or watch not in watches:
            return
        watches.remove(watch)
        if not watches:
            del self._watching[watch.run]
            if (subscription := self._subscriptions.pop(watch.run, None)) is not None:
                self._spawn(subscription.stop())

    async def _subscribe(self, run: tuple[str, str]) -> None:
        async def on_record(message: Msg) -> None:
            if is_terminal(message.headers):
                self._notify(run)

        subscription = await self._bus.subscribe(subjects.live_log(*run), on_record)
        if run in self._watching and run not in self._subscriptions:
            self._subscriptions[run] = subscription
        else:  # The call ended meanwhile.
            await subscription.stop()
        await self._check(run)

    async def _check(self, run: tuple[str, str]) -> None:
        last = await last_record(self._bus, *run)
        if last is not None and is_terminal(last.headers):
            self._notify(run)

    def _notify(self, run: tuple[str, str]) -> None:
        for watch in self._watching.get(run, ()):
            watch.notify()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        async def run() -> None:
            # Disconnected: the client renews subscriptions, and every run is checked after the reconnect.
            with suppress(Unavailable):
                await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
