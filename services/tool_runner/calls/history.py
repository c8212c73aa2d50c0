"""What the streams say about a round of a call: whether its run has ended, whether it is completed, whether it started.

A round is completed when it was paused, or when the call has its outcome.

Rule 1: the inbox is read first, then the log. Meanwhile the planner may move an outcome or a pause from the inbox to
the log, never back.
Rule 2: of several handlings of a round of a non-idempotent call, only the one whose `call_started` record comes first
on the run's stream may call the tool. It reads the stream back after writing, because a process that was suspended must
not trust its old state.
Rule 3: the end of a run is watched only during long calls, with one subscription per run that its calls share.
Rule 4: after subscribing, and after a reconnect, the last record of the log is read: an earlier end is not announced
again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Self, TypeVar

from nats.aio.msg import Msg

from contracts.runs.events import TERMINAL, CallStarted, Observed, Paused, RunEvent
from contracts.tools.messages import CallRequested
from contracts.wire import names, subjects
from contracts.wire.base import parsed
from contracts.wire.records import EVENTS_HEADER, Record, types_in
from services.messaging.connection import Bus
from services.messaging.errors import Unavailable
from services.messaging.nats_connection import Subscription
from services.messaging.pull_consumer import Delivery
from services.runtime.tasks import start_in
from services.shared.runs.last_record import last_record
from services.tool_runner.errors import AlreadyCompleted, RunEnded

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

        def on_reconnect() -> None:
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

        start_in(self._tasks, run())


_MAX_CLOCK_SKEW_NS = 5_000_000_000
_COMPLETING = frozenset({"observed", "paused"})


async def run_ended(bus: Bus, call: CallRequested) -> bool:
    """Return whether the run has ended or was purged. Waits while NATS is unavailable."""
    last = await last_record(bus, call.tenant, call.run_id)
    if last is not None:
        return is_terminal(last.headers)
    # A replica may lag behind; the leader does not.
    return await bus.last_from_leader(subjects.RUNS, subjects.log(call.tenant, call.run_id)) is None


async def check_open(bus: Bus, call: CallRequested) -> None:
    """Check that the call needs an outcome. Raises RunEnded or AlreadyCompleted."""
    if await run_ended(bus, call):
        raise RunEnded
    if await is_completed(bus, call):
        raise AlreadyCompleted


async def is_completed(bus: Bus, call: CallRequested) -> bool:
    """Return whether the round of the call is completed."""
    for name in (names.outcome_of(call.call_id, call.round), names.pause_of(call.call_id, call.round)):
        if await bus.last(subjects.INBOX, subjects.inbox(call.tenant, call.run_id, name)) is not None:
            return True
    reader = await bus.reader(subjects.RUNS)
    for message in await reader.messages(subjects.log(call.tenant, call.run_id)):
        if _COMPLETING.isdisjoint(types_in(message.headers)):
            continue
        for event in events_of(message.data):
            match event:
                case Observed(call_id=call.call_id):
                    return True
                # A pause with a `spec` came before the first round.
                case Paused(source="tool", spec=None, call_id=call.call_id, round=number) if number >= call.round:
                    return True
    return False


def events_of(data: bytes) -> list[RunEvent]:
    """Return the events of a stored record; none if it cannot be parsed."""
    record = parsed(Record, data)
    return [] if record is None else record.events


async def claim(bus: Bus, delivery: Delivery, call: CallRequested) -> int | None:
    """Record a round's start before its tool is called. Return when another handling began it (Unix ms); None: none."""
    subject = subjects.stream(call.tenant, call.run_id)
    start = Record(events=[CallStarted(call_id=call.call_id, tool=call.tool, round=call.round)])
    await bus.publish_surely(
        subject,
        start.model_dump_json().encode(),
        f"{names.round_key(call.run_id, call.call_id, call.round)}.started",
        {EVENTS_HEADER: start.types()},
    )
    reader = await bus.reader(subjects.RUNS)
    # Streams of a cluster may have different leaders, each with its own clock.
    since = delivery.stored_ns - (_MAX_CLOCK_SKEW_NS if bus.settings.replicas > 1 else 0)
    # A call that was requested again may be older than this message.
    stored = await (reader.messages(subject) if call.again else reader.since(subject, since))
    first = _first_start(stored, start.types(), call)
    if first is None:  # The replica that answered lags behind.
        first = _first_start(await reader.current(subject), start.types(), call)
    return None if first is not None and first.id == start.id else (first or start).at


def _first_start(stored: Iterable[Msg], types: str, call: CallRequested) -> Record | None:
    """Return the first record that says that the round of the call was started."""
    for message in stored:
        if (message.headers or {}).get(EVENTS_HEADER) == types:
            for event in events_of(message.data):
                if isinstance(event, CallStarted) and (event.call_id, event.round) == (call.call_id, call.round):
                    return Record.model_validate_json(message.data)
    return None
