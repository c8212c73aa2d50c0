"""What the streams say about a round of a call: whether its run has ended, whether it is completed, whether it started.

A round is completed when it was paused, or when the call has its outcome.

Rule 1: the inbox is read first, then the log. Meanwhile the planner may move an outcome or a pause from the inbox to
the log, never back.
Rule 2: of several handlings of a round of a non-idempotent call, only the one whose `call_started` record comes first
on the run's stream may call the tool. It reads the stream back after writing, because a process that was suspended must
not trust its old state.
"""

from collections.abc import Iterable

from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts.runs.events import CallStarted, Observed, Paused, RunEvent
from contracts.tools.messages import CallRequested
from contracts.wire import names, subjects
from contracts.wire.records import EVENTS_HEADER, Record, types_in
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.shared.runs.last_record import last_record
from services.tool_runner.calls.run_watch import is_terminal
from services.tool_runner.errors import AlreadyCompleted, RunEnded

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
    try:
        return Record.model_validate_json(data).events
    except ValidationError:
        return []


async def claim(bus: Bus, delivery: Delivery, call: CallRequested) -> int | None:
    """Record the start of a round before the tool is called.

    Return when another handling started it, in Unix ms; None: this one is the first.
    """
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
