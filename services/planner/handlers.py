"""Receives the planner's messages, and runs the loop that handles each of them.

The loop reads the log's tail, gets the next command from `advance` and executes it, until the command is Ack
(acknowledge) or Abandon (another handling owns the message). This process holds only caches, so any planner can take
over at any point.
"""

from dataclasses import replace

import structlog
from pydantic import ValidationError

from contracts.runs.inbox import INBOX_MESSAGE, CallFinished, CallPaused, GroupDue, ScheduleDue, ScheduleSet
from contracts.runs.requests import RunRequested
from contracts.sessions.schedules import FIRE_TIMER
from contracts.wire import subjects
from contracts.wire.ids import new_id, unix_ms
from contracts.wire.names import InvalidName
from services.messaging import dead_letters
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.messaging.tenants.time_slices import TimeSlice, TimeSlices
from services.planner.effects.call_places import CallPlaces
from services.planner.effects.chunk_publisher import ChunkWriter
from services.planner.effects.direct_calls import DirectCalls
from services.planner.effects.executor import Effects
from services.planner.effects.model_requests import ModelRequests
from services.planner.effects.sessions import Sessions
from services.planner.errors import short
from services.planner.logs.ownership_watch import Address
from services.planner.logs.run_log import RunLogs
from services.planner.logs.session_log import SessionAddress, SessionLogs
from services.planner.resolution import max_characters
from services.planner.run.advance import advance
from services.planner.run.commands import (
    DECIDES_NOTHING,
    Abandon,
    Ack,
    Append,
    Handling,
    Incoming,
    Poisoned,
    Progress,
    Received,
    Rules,
)
from services.planner.run.state.run import Run
from services.planner.upkeep.schedules import Schedules
from services.shared.budgets.spending import KeySpending
from services.shared.budgets.totals import KeyDay

logger = structlog.get_logger(__name__)

_NAMES_OF_OTHERS = frozenset({"group", "waiter", FIRE_TIMER, "set"})
"""How the names of control messages begin whose subjects name a session (`GroupDue`) or a schedule."""


class Planner:
    """Handles the messages of all runs, over one bus."""

    def __init__(
        self,
        bus: Bus,
        model_requests: ModelRequests,
        rules: Rules,
        direct_calls: DirectCalls,
        *,
        cached_runs: int,
        chunk_ttl_s: int,
    ) -> None:
        self._bus = bus
        self._model_requests = model_requests
        self._rules = rules
        session_logs = SessionLogs(bus)
        self._logs = RunLogs(bus, session_logs, model_requests.strategy, cached_runs=cached_runs)
        self._sessions = Sessions(bus, self._logs, session_logs)
        self._schedules = Schedules(bus)
        self._chunks = ChunkWriter(bus, chunk_ttl_s)
        self._time_slices = TimeSlices()
        self._places = CallPlaces(bus)
        self._key_spending = KeySpending(bus)
        self._direct_calls = direct_calls

    async def on_message(self, delivery: Delivery) -> bool:
        """Handle a request, or a message to a run or session.

        True: acknowledge it; False: another handling owns it.
        """
        try:
            address = subjects.parse(delivery.subject)
            where = Address(address.tenant, address.run)
        except InvalidName as error:
            await dead_letters.dead_letter(self._bus, delivery, str(error))
            return True
        time_slice = TimeSlice(self._time_slices, where.tenant, is_new=delivery.stream == subjects.REQUESTS)
        await time_slice.take()
        handle = self._begin_of_session if address.kind == "session_inbox" else self._begin
        try:
            return await handle(delivery, where, time_slice)
        finally:
            time_slice.end()

    async def _begin(self, delivery: Delivery, where: Address, time_slice: TimeSlice) -> bool:
        # Counted before parsing, since parsing may be what crashes the process.
        if await dead_letters.count_start(self._bus, delivery) > self._bus.settings.max_deliveries:
            await dead_letters.dead_letter(
                self._bus, delivery, "its handling was begun too often and never came to an end"
            )
            if not _is_of_run(delivery.subject):
                return True
            return await self._handle(where, Incoming(delivery.owner, new_id(), Poisoned()), time_slice, is_first=False)
        try:
            message = _parsed(delivery, where)
        except (ValidationError, InvalidName) as error:
            await dead_letters.dead_letter(self._bus, delivery, short(error))
            return True
        if isinstance(message, GroupDue):
            await self._sessions.on_timer(SessionAddress(*where), message, delivery.owner)
            return True
        if isinstance(message, ScheduleSet | ScheduleDue):
            await self._schedules.on_message(where, message)
            return True
        with structlog.contextvars.bound_contextvars(run_id=where.run):
            incoming = Incoming(delivery.owner, new_id(), message)
            return await self._handle(where, incoming, time_slice, is_first=delivery.number == 1)

    async def _begin_of_session(self, delivery: Delivery, where: Address, _: TimeSlice) -> bool:
        reason = ""
        if await dead_letters.count_start(self._bus, delivery) > self._bus.settings.max_deliveries:
            reason = "its handling was begun too often and never came to an end"
        else:
            with structlog.contextvars.bound_contextvars(session=where.run):
                try:
                    await self._sessions.on_message(SessionAddress(*where), delivery.data, delivery.owner)
                except ValidationError as error:
                    reason = short(error)
        if reason:
            await dead_letters.dead_letter(self._bus, delivery, reason)
            await self._sessions.on_dead_letter(SessionAddress(*where), subjects.parse(delivery.subject).name)
        return True

    async def _handle(self, where: Address, incoming: Incoming, time_slice: TimeSlice, *, is_first: bool) -> bool:
        """Handle a message. `is_first`: it was not delivered before."""
        effects = self._effects(where, incoming, time_slice)
        if isinstance(incoming.message, CallFinished | CallPaused):
            self._places.give_back(where.tenant, incoming.message.tool)
        if isinstance(incoming.message, RunRequested):
            self._logs.begin(where, is_new=is_first)
        # A first delivery is handled with the run that is cached, which may be outdated: an append shows it.
        progress, fresh, is_current = Progress(unix_ms()), not is_first, False
        async with self._logs.lock(where) as lock:
            while True:
                await time_slice.take()
                async with lock:
                    run = await self._logs.load(where, fresh=fresh)
                    effects.store_spending_soon(run)
                    is_current = is_current or fresh
                    command = advance(
                        run, Handling(incoming, progress), self._rules_of(run, progress, is_first=is_first)
                    )
                    if isinstance(command, Append):
                        progress = progress.wrote(await self._logs.append(where, run, progress.now, command.events))
                        fresh, is_current = False, True
                        effects.open_soon(run)
                        continue
                if not is_current and not isinstance(command, DECIDES_NOTHING):
                    fresh = True
                    continue
                if isinstance(command, Ack | Abandon):
                    await effects.finish()
                    if run.is_at_rest:
                        self._logs.forget(where)
                    return isinstance(command, Ack)
                progress, fresh = await effects.carry_out(run, progress, command)

    def _effects(self, where: Address, incoming: Incoming, time_slice: TimeSlice) -> Effects:
        return Effects(
            self._bus,
            self._logs,
            self._model_requests,
            self._rules,
            self._chunks,
            where,
            incoming,
            time_slice,
            self._places,
            self._direct_calls,
            self._sessions,
            self._key_spending,
        )

    def _rules_of(self, run: Run, progress: Progress, *, is_first: bool) -> Rules:
        started = run.started or (progress.opening.started if progress.opening is not None else None)
        direct = self._direct_calls.rules() if is_first else None
        request = run.request
        spending = self._key_spending.known(KeyDay.of(request)) if request is not None and request.key_budget else None
        strategy = self._model_requests.strategy(started)
        model = run.model or (started.model if started is not None else "")
        characters = max_characters(model, self._rules.max_characters)
        return replace(self._rules, strategy=strategy, direct=direct, key_spending=spending, max_characters=characters)


def _is_of_run(subject: str) -> bool:
    """Whether a subject names a run, and not a session or schedule in its place."""
    address = subjects.parse(subject)
    return address.kind != "control" or address.name.partition("-")[0] not in _NAMES_OF_OTHERS


def _parsed(delivery: Delivery, where: Address) -> Received | GroupDue | ScheduleSet | ScheduleDue:
    """Read a message. Raises ValidationError and InvalidName."""
    if delivery.stream != subjects.REQUESTS:
        return INBOX_MESSAGE.validate_json(delivery.data)
    request = RunRequested.model_validate_json(delivery.data)
    if (request.tenant, request.run_id) != (where.tenant, where.run):
        raise InvalidName(
            f"the request is for run {request.run_id[:40]!r} of {request.tenant[:40]!r}, which is not its subject's"
        )
    return request
