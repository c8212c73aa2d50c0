"""What the planner hears, and the loop that every message goes through.

A message is handled by reading the log's tail, letting `advance` say the one next thing, doing it, and again, until nothing is left
(acknowledge) or somebody else owns the message (silent). Nothing is held here but caches: any planner can take over at any point.
"""

import structlog
from pydantic import ValidationError

from contracts import subjects
from contracts.ids import new_id
from contracts.inbox import INBOX_MESSAGE, CallFinished, CancelRequested, TimerFired, TopUpRequested
from contracts.runs import RunRequested
from contracts.subjects import InvalidName
from services.messaging import dead_letters, handlings
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.messaging.tenant_turns import Turn, Turns
from services.planner.effects.call_places import CallPlaces
from services.planner.effects.executor import Effects, now
from services.planner.effects.model_call import Address
from services.planner.effects.model_requests import Thinker
from services.planner.run.advance import advance
from services.planner.run.commands import Ack, Append, Kind, Rules, Silent, Told
from services.planner.run_log import RunLogs, short

logger = structlog.get_logger(__name__)


class Planner:
    """Handles the messages of all runs, over one bus."""

    def __init__(self, bus: Bus, thinker: Thinker, rules: Rules, *, cached_runs: int, chunk_ttl_s: int) -> None:
        self._bus = bus
        self._thinker = thinker
        self._rules = rules
        self._logs = RunLogs(bus, cached_runs=cached_runs)
        self._chunk_ttl_s = chunk_ttl_s
        self._turns = Turns()
        self._places = CallPlaces(bus)

    async def on_message(self, delivery: Delivery) -> bool:
        """Handle a request, an inbox message or a control message. True: acknowledge it; False: it is somebody else's."""
        try:
            address = subjects.parse(delivery.subject)
            where = Address(address.tenant, address.run)
        except InvalidName as error:
            await dead_letters.dead_letter(self._bus, delivery, str(error))
            return True
        turn = Turn(self._turns, where.tenant, is_new=delivery.stream == subjects.REQUESTS)
        await turn.take()
        try:
            return await self._begin(delivery, where, turn)
        finally:
            turn.end()

    async def _begin(self, delivery: Delivery, where: Address, turn: Turn) -> bool:
        # Counted before anything is parsed: parsing may be what kills.
        if await handlings.begin(self._bus, delivery) > self._bus.settings.max_deliveries:
            await dead_letters.dead_letter(self._bus, delivery, "its handling was begun too often and never came to an end")
            return await self._handle(where, Told(delivery.owner, "poisoned", new_id(), now()), turn)
        try:
            told = self._told(delivery, where)
        except (ValidationError, InvalidName) as error:
            await dead_letters.dead_letter(self._bus, delivery, short(error))
            return True
        with structlog.contextvars.bound_contextvars(run_id=where.run):
            return await self._handle(where, told, turn)

    def _told(self, delivery: Delivery, where: Address) -> Told:
        told = Told(delivery.owner, "request", new_id(), now())
        if delivery.stream == subjects.REQUESTS:
            request = RunRequested.model_validate_json(delivery.data)
            told.request, told.context = request, request.tool_context
            if (request.tenant, request.run_id) != (where.tenant, where.run):
                raise InvalidName(f"the request is for run {request.run_id[:40]!r} of {request.tenant[:40]!r}, which is not its subject's")
            told.started, told.refusal = self._thinker.open(request)
            told.waited = not self._thinker.lacks_tools(request)
            return told
        message = INBOX_MESSAGE.validate_json(delivery.data)
        told.kind = _KINDS[message.kind]
        if isinstance(message, CallFinished):
            told.finished = message
        elif isinstance(message, CancelRequested):
            told.reason = message.reason
        elif isinstance(message, TimerFired):
            told.timer = message
        elif isinstance(message, TopUpRequested):
            told.limits, told.wish = message.limits, message.id
        return told

    async def _handle(self, where: Address, told: Told, turn: Turn) -> bool:
        effects = Effects(self._bus, self._logs, self._thinker, self._rules, self._chunk_ttl_s, where, told, turn, self._places)
        if told.finished is not None:
            self._places.give_back(where.tenant, told.finished.tool)
        fresh, redacted = True, False
        async with self._logs.lock(where) as lock:
            while True:
                await turn.take()
                async with lock:
                    run = await self._logs.load(where, fresh=fresh)
                    if told.finished is not None and run.started is not None and not redacted:
                        told.finished, redacted = await self._thinker.redacted(run.started, told.finished), True
                    if run.started is not None and run.step is not None and run.step.join is not None and not run.concluded:
                        told.specs = await self._thinker.specs(run.started)
                    todo = advance(run, told, self._rules)
                    if isinstance(todo, Append):
                        told.note(await self._logs.append(where, run, told.now, todo.events))
                        fresh = False
                        continue
                if isinstance(todo, Ack | Silent):
                    await effects.finish()
                    return isinstance(todo, Ack)
                fresh = await effects.carry_out(run, todo)


_KINDS: dict[str, Kind] = {
    "call_finished": "call_finished",
    "timer": "timer",
    "resumed": "resumed",
    "cancel": "cancel",
    "top_up": "top_up",
}
