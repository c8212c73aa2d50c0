"""Receives the planner's messages, and has each of them handled: as one of a run, a session or a schedule.

This process holds only caches, so any planner can take over at any point.
"""

import structlog
from pydantic import ValidationError

from contracts.runs import inbox
from contracts.runs.requests import RunRequested
from contracts.sessions.records import SESSION_HEADER, SESSION_MESSAGE
from contracts.sessions.schedules import FIRE_TIMER
from contracts.wire import subjects
from contracts.wire.names import InvalidName, new_id
from services.messaging import dead_letters
from services.messaging.fairness import TimeSlice, TimeSlices
from services.messaging.pull_consumer import Delivery
from services.planner.effects.executor import handle
from services.planner.effects.parts import Parts
from services.planner.errors import short
from services.planner.logs.ownership_watch import Address
from services.planner.logs.session_log import SessionAddress
from services.planner.run.commands import Incoming, Poisoned, Received
from services.planner.upkeep.schedules import Schedules
from services.shared.runs.last_record import last_record

_BEGUN_TOO_OFTEN = "its handling was begun too often and never came to an end"
_NAMES_OF_OTHERS = frozenset({"group", "waiter", FIRE_TIMER, "set"})
"""How the names of control messages begin whose subjects name a session (`GroupDue`) or a schedule."""


class Planner:
    """Handles the messages of all runs, over one bus."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._schedules = Schedules(parts.bus)
        self._time_slices = TimeSlices()

    async def on_message(self, delivery: Delivery) -> bool:
        """Handle a request, or a message to a run or session.

        True: acknowledge it; False: another handling owns it.
        """
        try:
            found = subjects.parse(delivery.subject)
            address = Address(found.tenant, found.run)
        except InvalidName as error:
            await dead_letters.dead_letter(self._parts.bus, delivery, str(error))
            return True
        time_slice = TimeSlice(self._time_slices, address.tenant, is_new=delivery.stream == subjects.REQUESTS)
        await time_slice.take()
        try:
            # Counted before parsing, since parsing may be what crashes the process.
            starts = await dead_letters.count_start(self._parts.bus, delivery)
            is_poisoned = starts > self._parts.bus.settings.max_deliveries
            if found.kind == "session_inbox":
                return await self._on_session_message(delivery, SessionAddress(*address), is_poisoned=is_poisoned)
            if not is_poisoned:
                return await self._on_run_message(delivery, address, time_slice)
            await dead_letters.dead_letter(self._parts.bus, delivery, _BEGUN_TOO_OFTEN)
            if found.kind == "control" and found.name.partition("-")[0] in _NAMES_OF_OTHERS:
                return True
            return await self._end_run(delivery, address, time_slice)
        finally:
            time_slice.end()

    async def _end_run(self, delivery: Delivery, address: Address, time_slice: TimeSlice) -> bool:
        """End the run of a message that was set aside, so that who asked for it learns of it."""
        ended = Poisoned(delivery.headers.get(SESSION_HEADER, ""))
        poisoned = Incoming(delivery.owner, new_id(), ended, is_first=False)
        return await handle(self._parts, address, poisoned, time_slice)

    async def _on_run_message(self, delivery: Delivery, address: Address, time_slice: TimeSlice) -> bool:
        try:
            message = _parsed(delivery, address)
        except (ValidationError, InvalidName) as error:
            await dead_letters.dead_letter(self._parts.bus, delivery, short(error))
            if delivery.stream != subjects.REQUESTS or isinstance(error, InvalidName):
                return True
            return await self._end_run(delivery, address, time_slice)
        if isinstance(message, inbox.GroupDue):
            await self._parts.sessions.on_timer(SessionAddress(*address), message, delivery.owner)
            return True
        if isinstance(message, inbox.ScheduleSet | inbox.ScheduleDue):
            await self._schedules.on_message(address, message)
            return True
        if isinstance(message, inbox.RunYields) and not await self._is_stored(address):
            return True  # Delivered again after its run was purged: what it records would be all that is left of it.
        with structlog.contextvars.bound_contextvars(run_id=address.run):
            incoming = Incoming(delivery.owner, new_id(), message, is_first=delivery.number == 1)
            return await handle(self._parts, address, incoming, time_slice)

    async def _is_stored(self, address: Address) -> bool:
        bus, request = self._parts.bus, {"last_by_subj": subjects.request(*address)}
        if await last_record(bus, *address) is not None:
            return True
        return await bus.until_answered(lambda: bus.get_from_leader(subjects.REQUESTS, request)) is not None

    async def _on_session_message(self, delivery: Delivery, address: SessionAddress, *, is_poisoned: bool) -> bool:
        reason = _BEGUN_TOO_OFTEN if is_poisoned else ""
        if not is_poisoned:
            with structlog.contextvars.bound_contextvars(session=address.key):
                try:
                    message = SESSION_MESSAGE.validate_json(delivery.data)
                    await self._parts.sessions.on_message(address, message, delivery.owner)
                except ValidationError as error:
                    reason = short(error)
        if reason:
            await dead_letters.dead_letter(self._parts.bus, delivery, reason)
            await self._parts.sessions.on_dead_letter(address, subjects.parse(delivery.subject).name)
        return True


def _parsed(delivery: Delivery, address: Address) -> Received | inbox.GroupDue | inbox.ScheduleSet | inbox.ScheduleDue:
    """Read a message. Raises ValidationError and InvalidName."""
    if delivery.stream != subjects.REQUESTS:
        return inbox.INBOX_MESSAGE.validate_json(delivery.data)
    request = RunRequested.model_validate_json(delivery.data)
    if (request.tenant, request.run_id) != address:
        raise InvalidName(
            f"the request is for run {request.run_id[:40]!r} of {request.tenant[:40]!r}, which is not its subject's"
        )
    return request
