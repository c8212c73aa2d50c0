"""What the planner hears, and the loop that every message goes through.

A message is handled by reading the log's tail, letting `advance` say the one next thing, doing it, and again, until nothing is left
(acknowledge) or somebody else owns the message (silent). Nothing is held here but caches: any planner can take over at any point.
"""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import structlog
from pydantic import ValidationError

from contracts import subjects
from contracts.ids import new_id
from contracts.inbox import INBOX_MESSAGE, CallFinished, CancelRequested
from contracts.records import EVENTS_HEADER, Record
from contracts.runs import RunRequested
from contracts.subjects import InvalidName
from contracts.tools import CallRequested
from services.runtime import dead, fenced
from services.runtime.bus import Bus
from services.runtime.direct import Stored
from services.runtime.errors import Moved
from services.runtime.puller import Delivery

from . import endings, index
from .advance import Ack, Append, Ask, AskCritique, AskEffort, Close, Dispatch, Kind, Open, Rules, Silent, Todo, Told, advance
from .asking import Address, ChunkSender, Tail, ask, watched
from .decisions import Decision, Final, Invalid
from .errors import CannotOpen
from .run import Event, Run, fold
from .thinking import Thinker

logger = structlog.get_logger(__name__)


def _now() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class _Lock:
    """Orders the handlings of one run in this process; held over load, advance and append, never over the model."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Planner:
    """Handles the messages of all runs, over one bus."""

    def __init__(self, bus: Bus, thinker: Thinker, rules: Rules, *, cached_runs: int, chunk_ttl_s: int) -> None:
        self._bus = bus
        self._thinker = thinker
        self._rules = rules
        self._cached_runs = cached_runs
        self._chunk_ttl_s = chunk_ttl_s
        self._runs: OrderedDict[Address, Run] = OrderedDict()
        self._locks: dict[Address, _Lock] = {}

    async def on_message(self, delivery: Delivery) -> bool:
        """Handle a request, an inbox message or a control message. True: acknowledge it; False: it is somebody else's."""
        try:
            address = subjects.parse(delivery.subject)
            where = Address(address.tenant, address.run)
        except InvalidName as error:
            await dead.bury(self._bus, delivery, str(error))
            return True
        # Counted before anything is parsed: parsing may be what kills.
        if delivery.number > self._bus.settings.max_deliveries:
            await dead.bury(self._bus, delivery, "too many deliveries")
            return await self._handle(where, Told(delivery.owner, "poisoned", new_id(), _now()))
        try:
            told = self._told(delivery, where)
        except (ValidationError, InvalidName) as error:
            await dead.bury(self._bus, delivery, _short(error))
            return True
        with structlog.contextvars.bound_contextvars(run_id=where.run):
            return await self._handle(where, told)

    def _told(self, delivery: Delivery, where: Address) -> Told:
        told = Told(delivery.owner, "request", new_id(), _now())
        if delivery.stream == subjects.REQUESTS:
            request = RunRequested.model_validate_json(delivery.data)
            if (request.tenant, request.run_id) != (where.tenant, where.run):
                raise InvalidName(f"the request is for run {request.run_id[:40]!r} of {request.tenant[:40]!r}, which is not its subject's")
            try:
                told.started = self._thinker.open(request)
            except CannotOpen as error:
                told.started, told.refusal = self._thinker.open_bare(request), error.fault
            return told
        message = INBOX_MESSAGE.validate_json(delivery.data)
        told.kind = _KINDS[message.kind]
        if isinstance(message, CallFinished):
            told.finished = message
        elif isinstance(message, CancelRequested):
            told.reason = message.reason
        return told

    async def _handle(self, where: Address, told: Told) -> bool:
        entry = self._locks.setdefault(where, _Lock())
        entry.users += 1
        background: list[asyncio.Task[None]] = []
        fresh = True
        try:
            while True:
                async with entry.lock:
                    run = await self._load(where, fresh=fresh)
                    if told.finished is not None and run.started is not None and run.step is not None and run.step.join is not None:
                        told.specs = await self._thinker.specs(run.started)
                    todo = advance(run, told, self._rules)
                    if isinstance(todo, Append):
                        await self._append(where, run, told, todo.events)
                        fresh = False
                        continue
                if isinstance(todo, Ack | Silent):
                    await asyncio.gather(*background)
                    return isinstance(todo, Ack)
                fresh = await self._carry_out(where, run, told, todo, background)
        finally:
            entry.users -= 1
            if not entry.users:
                self._locks.pop(where, None)

    async def _carry_out(self, where: Address, run: Run, told: Told, todo: Todo, background: list[asyncio.Task[None]]) -> bool:
        """Start an effect. Returns whether the log must be read again before the next decision."""
        match todo:
            case Ask(asked):
                sender_tail = self._tail(where, asked.holder)
                sender = ChunkSender(self._bus, where, asked, run.seq, sender_tail, self._chunk_ttl_s)
                stream, reading = await self._thinker.think(run)
                told.decision = await ask(self._bus, where, sender, stream, reading, lambda d: self._answer_of(run, d))
                told.now = _now()
                if told.decision is None:
                    logger.info("model_call_abandoned", turn=asked.turn, attempt=asked.attempt)
                return True
            case AskEffort(asked):
                told.triaged = await watched(self._bus, where, self._tail(where, asked.holder), self._thinker.triage(run))
                return True
            case AskCritique(asked, args):
                answer = endings.answered(run, args).raw_answer
                told.critique = await watched(self._bus, where, self._tail(where, asked.holder), self._thinker.critique(run, answer))
                return True
            case Dispatch(calls, again):
                await asyncio.gather(*(self._dispatch(where, run, call.call_id, again=call.call_id in again) for call in calls))
                told.dispatched.update(call.call_id for call in calls)
            case Open():
                told.opened = True
                if run.started is not None:
                    background.append(asyncio.create_task(index.enter(self._bus, run, run.started)))
            case Close():
                told.closed = True
                if run.started is not None:
                    await index.close(self._bus, run, run.started)
        return False

    def _answer_of(self, run: Run, decision: Decision) -> tuple[Decision, str]:
        """A reply that may not be repaired any more comes to what can be salvaged of it; an answer is streamed as the payload has it."""
        if isinstance(decision, Invalid) and decision.salvage is not None and run.repairs >= self._rules.max_repairs:
            decision = decision.salvage
        if isinstance(decision, Final):
            return decision, endings.answered(run, decision.args).raw_answer
        return decision, ""

    def _tail(self, where: Address, holder: str) -> Tail:
        async def tail() -> int | None:
            run = await self._load(where, fresh=True)
            mine = run.terminal is None and run.asked is not None and run.asked.holder == holder
            return run.seq if mine else None

        return tail

    async def _dispatch(self, where: Address, run: Run, call_id: str, *, again: bool) -> None:
        call, started, step = run.open.get(call_id), run.started, run.step
        if call is None or started is None or step is None:
            return  # Settled meanwhile.
        request = started.request
        message = CallRequested(
            call_id=call_id,
            run_id=where.run,
            tenant=where.tenant,
            tool=call.tool,
            args=call.args,
            spec=started.tools[call.tool],
            step=step.step,
            deadline_at=started.deadline_at,
            again=again,
            session_id=request.session_id,
            trace_id=request.trace_id,
            user_id=request.user_id,
            context=request.tool_context,
        )
        subject = subjects.call(where.tenant, where.run, call.tool)
        await self._bus.publish_surely(subject, message.model_dump_json().encode(), f"{where.run}.{call_id}")

    async def _load(self, where: Address, *, fresh: bool) -> Run:
        """The run as folded so far; `fresh` reads the log's tail first. A run that is not cached is always read."""
        run = self._runs.get(where)
        if run is None:
            run, fresh = Run(), True
        if fresh:
            await self._take_in(
                where, run, await (await self._bus.reader(subjects.RUNS)).read(subjects.log(where.tenant, where.run), run.seq + 1)
            )
        self._runs[where] = run
        self._runs.move_to_end(where)
        while len(self._runs) > self._cached_runs:
            self._runs.popitem(last=False)
        return run

    async def _take_in(self, where: Address, run: Run, tail: list[Stored]) -> None:
        for sequence, data in tail:
            if sequence <= run.seq:
                continue  # Two handlings may read the same tail.
            try:
                record = Record.model_validate_json(data)
            except ValidationError as error:
                # Not a record of ours: it counts for the fence and for nothing else.
                run.seq = sequence
                subject = subjects.log(where.tenant, where.run)
                await dead.bury_bytes(self._bus, subjects.RUNS, subject, data, _short(error), f"dead-{subjects.RUNS}-{sequence}")
                continue
            fold(run, sequence, record.at, record.events)

    async def _append(self, where: Address, run: Run, told: Told, events: list[Event]) -> None:
        """Write a record behind the fence. When the run has moved on, take in what happened instead; `advance` decides again."""
        record = endings.fitting(Record(at=told.now, events=events))
        subject = subjects.log(where.tenant, where.run)
        headers = {EVENTS_HEADER: record.types()}
        try:
            sequence, later = await fenced.append(
                self._bus, subjects.RUNS, subject, record.model_dump_json().encode(), record.id, after=run.seq, headers=headers
            )
        except Moved as moved:
            if not moved.tail:
                # Purged under us: what we knew of it is void.
                self._runs.pop(where, None)
            await self._take_in(where, run, moved.tail)
            return
        if sequence > run.seq:
            fold(run, sequence, record.at, record.events)
        await self._take_in(where, run, later)
        _note(told, record.events)


def _note(told: Told, events: list[Event]) -> None:
    """Remember what this handling itself has written."""
    for event in events:
        if event.type == "asked":
            told.asked, told.decision, told.critique = True, None, None
        elif event.type == "step" and event.status == "started":
            told.asked, told.decision = False, None
            told.announced.update(call.call_id for call in event.calls)
        elif event.type == "called":
            told.announced.update(call.call_id for call in event.calls)


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]
    return str(error)[:300]


_KINDS: dict[str, Kind] = {"call_finished": "call_finished", "timer": "timer", "cancel": "cancel"}
