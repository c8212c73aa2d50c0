"""What the streams say about a call: whether its run has ended, whether it has an outcome, whether it was started.

Rule 1: the inbox is read first, then the log. Meanwhile the planner may move the outcome from the inbox to the log,
never back.
Rule 2: of several handlings of a non-idempotent call, only the one whose `call_started` record comes first on the run's
stream may call the tool. It reads the stream back after writing, because a process that was suspended must not trust
its old state.
"""

from collections.abc import Iterable

from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts import subjects
from contracts.events import CallStarted, Observed, RunEvent
from contracts.records import EVENTS_HEADER, Record
from contracts.tools import CallRequested
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.shared.last_record import last_record
from services.tool_runner.calls.run_watch import is_terminal
from services.tool_runner.errors import AlreadySettled, RunEnded

_MAX_CLOCK_SKEW_NS = 5_000_000_000


async def run_ended(bus: Bus, call: CallRequested) -> bool:
    """Return whether the run has ended or was purged. Waits while NATS is unavailable."""
    last = await last_record(bus, call.tenant, call.run_id)
    if last is not None:
        return is_terminal(last.headers)
    # A replica may lag behind; the leader does not.
    return await bus.last_from_leader(subjects.RUNS, subjects.log(call.tenant, call.run_id)) is None


async def check_open(bus: Bus, call: CallRequested) -> None:
    """Check that the call needs an outcome. Raises RunEnded or AlreadySettled."""
    if await run_ended(bus, call):
        raise RunEnded
    if await is_settled(bus, call):
        raise AlreadySettled


async def is_settled(bus: Bus, call: CallRequested) -> bool:
    """Return whether the call has an outcome."""
    if await bus.last(subjects.INBOX, subjects.inbox(call.tenant, call.run_id, call.call_id)) is not None:
        return True
    reader = await bus.reader(subjects.RUNS)
    for message in await reader.messages(subjects.log(call.tenant, call.run_id)):
        if "observed" in (message.headers or {}).get(EVENTS_HEADER, "") and _observes(message.data, call.call_id):
            return True
    return False


def _observes(data: bytes, call_id: str) -> bool:
    return any(isinstance(event, Observed) and event.call_id == call_id for event in events_of(data))


def _start(data: bytes, call_id: str) -> Record | None:
    """Return the record, if it says that the call was started."""
    started = any(isinstance(event, CallStarted) and event.call_id == call_id for event in events_of(data))
    return Record.model_validate_json(data) if started else None


def events_of(data: bytes) -> list[RunEvent]:
    """Return the events of a stored record; none if it cannot be parsed."""
    try:
        return Record.model_validate_json(data).events
    except ValidationError:
        return []


async def claim(bus: Bus, delivery: Delivery, call: CallRequested) -> int | None:
    """Record the start of a call before the tool is called.

    Return when another handling started it, in Unix ms; None: this one is the first.
    """
    subject = subjects.stream(call.tenant, call.run_id)
    start = Record(events=[CallStarted(call_id=call.call_id, tool=call.tool)])
    await bus.publish_surely(
        subject,
        start.model_dump_json().encode(),
        f"{call.run_id}.{call.call_id}.started",
        {EVENTS_HEADER: start.types()},
    )
    reader = await bus.reader(subjects.RUNS)
    # Streams of a cluster may have different leaders, each with its own clock.
    since = delivery.stored_ns - (_MAX_CLOCK_SKEW_NS if bus.settings.replicas > 1 else 0)
    # A call that was requested again may be older than this message.
    stored = await (reader.messages(subject) if call.again else reader.since(subject, since))
    first = _first_start(stored, start.types(), call.call_id)
    if first is None:  # The replica that answered lags behind.
        first = _first_start(await reader.current(subject), start.types(), call.call_id)
    return None if first is not None and first.id == start.id else (first or start).at


def _first_start(stored: Iterable[Msg], types: str, call_id: str) -> Record | None:
    starts = (each.data for each in stored if (each.headers or {}).get(EVENTS_HEADER) == types)
    return next((found for data in starts if (found := _start(data, call_id))), None)
