"""Reads, folds and caches the logs of runs, and appends to them: each record is the successor of the newest known one.

Only a cache lives here, so any planner can take over at any point.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import structlog

from contracts.runs.events import Cancelled, Chunk, Done, Error, Observed, PayloadProposed, Step, UnknownEvent
from contracts.runs.requests import KeptContext, Memory
from contracts.wire import names, subjects
from contracts.wire.base import MAX_RECORD_BYTES
from contracts.wire.records import EVENTS_HEADER, PAUSES_HEADER, VERSION_HEADER, Record
from services.messaging import guarded_write
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.guarded_write import Guard
from services.messaging.reads import StoredMessage, sequence_of
from services.planner.logs import index
from services.planner.logs.offload import Offloader
from services.planner.logs.ownership_watch import Address, Tail
from services.planner.logs.session_log import SessionAddress, SessionLogs, parsed
from services.planner.run.ending import terminal
from services.planner.run.people import pauses
from services.planner.run.state.fold import StrategyOf, fold
from services.planner.run.state.run import Event, Run, begin_history
from services.planner.sessions import memory
from services.runtime.health import VERSION
from services.runtime.newest import Newest
from services.shared import metrics
from services.shared.sessions.state import Session, Turn

logger = structlog.get_logger(__name__)

MAX_CACHED_RUNS = 2000
_REFUSED = frozenset({"rejected", "approval_expired"})
CHUNK_TYPE = b'"chunk"'


class AskedRun(NamedTuple):
    """A run as it was when it asked a model, and the headers of the record that says so."""

    run: Run
    headers: dict[str, str] | None


class RunLogs:
    """Reads and writes the logs of all runs."""

    def __init__(
        self, bus: Bus, sessions: SessionLogs, strategy_of: StrategyOf, *, cached_runs: int = MAX_CACHED_RUNS
    ) -> None:
        self._bus = bus
        self._sessions = sessions
        self._strategy_of = strategy_of
        self._offloader = Offloader(bus)
        self._runs = Newest[Address, Run](cached_runs)
        self._locks: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()

    def lock(self, address: Address) -> asyncio.Lock:
        """Give the lock of a run. It is held over load, advance and append, never over a model call.

        It only saves work: handlings of this process do not outdate each other. Between processes the server decides
        which record is stored.
        """
        return self._locks.setdefault(address, asyncio.Lock())

    async def load(self, address: Address, *, fresh: bool) -> Run:
        """Return the folded run. `fresh`: read the log's tail first. A run that is not cached is always read."""
        run = self._runs.get(address)
        if run is None:
            run, fresh = Run(), True
        if fresh:
            tail = await self._read(subjects.log(*address), run.seq + 1)
            cached = self._runs.get(address)
            if cached is not None and cached.seq >= run.seq:
                run = cached  # Another handling has read it meanwhile, and may append to it.
            await self._fold_tail(address, run, tail)
        await self._begin_history(address, run)
        self._runs[address] = run
        return run

    async def _begin_history(self, address: Address, run: Run) -> None:
        """Add what was said before the run: its log only names the record of the session up to which it knows it."""
        started = run.started
        if started is None or started.memory is None or run.conversation is not None or run.terminal is not None:
            return
        said = memory.of_messages(started.request.messages, started.memory)
        if started.conversation_seq is not None and started.request.session_id is not None:
            of_session = SessionAddress.of(address.tenant, started.request.session_id)
            session = await self._sessions.at(of_session, started.conversation_seq)
            session = await self._with_whole_turns(address.tenant, session, started.memory)
            said = memory.of_session(session, started.memory, memory.reported_in(started.request))
            asks = (started.request.agent, started.request.user_id)
            run.pause_decisions.approved_before = frozenset(
                (rule, tool) for rule, tool, *of in session.approvals if tuple(of) == asks
            )
        if run.started is started:
            begin_history(run, said)

    async def _with_whole_turns(self, tenant: str, session: Session, kept: Memory) -> Session:
        """Return the session with long texts of its newest turns as the logs of their runs hold them."""
        whole: dict[str, Turn] = {}
        for turn in memory.cut_turns(session, kept):
            run = await self.load(of_turn := Address(tenant, turn.run), fresh=True)
            self.forget(of_turn)
            ended = terminal.ended(turn.run, run, run.request, MAX_RECORD_BYTES)
            if ended is not None and ended.requested_at == turn.requested_at:  # Not of a later run with its id.
                texts = {"question": ended.question, "inputs": ended.inputs, "answer": ended.answer, "is_cut": False}
                whole[turn.run] = turn.model_copy(update=texts)
        return session.model_copy(update={"turns": [whole.get(turn.run, turn) for turn in session.turns]})

    async def as_asked(self, address: Address, place: tuple[int, int, int]) -> AskedRun | None:
        """Return a run as it was when it asked a model; None: its log has no such request, or its triage goes on.

        `place`: turn, part and attempt of the request.
        """
        run = Run()
        for message in await (await self._bus.reader(subjects.RUNS)).messages(subjects.log(*address)):
            await self._fold_tail(address, run, [(sequence_of(message), message.data)])
            asked = run.asked
            if asked is not None and asked.model is not None and (asked.turn, asked.part, asked.attempt) == place:
                await self._begin_history(address, run)
                return AskedRun(run, message.headers)
        return None

    async def payload(self, tenant: str, run: Run, payload_id: str) -> PayloadProposed | None:
        """Return a payload of the run's conversation, from the log of its turn; None: it is not there (any more)."""
        started = run.started
        if started is None or started.conversation_seq is None or started.request.session_id is None:
            return None
        session = await self._sessions.at(
            SessionAddress.of(tenant, started.request.session_id), started.conversation_seq
        )
        kept = session.proposals.get(payload_id)
        runs = [each.run for each in session.turns if names.payload_id(each.run) == payload_id]
        for of_run in [kept.run] if kept is not None else runs:
            for _, data in await self._read(subjects.log(tenant, of_run), 1):
                for event in Record.model_validate_json(data).events:
                    if isinstance(event, PayloadProposed) and event.payload_id == payload_id:
                        return event
        return None

    def begin(self, address: Address, *, is_new: bool) -> None:
        """Forget what is known of a requested run: an earlier run with its id may have been purged.

        `is_new`: its log is taken to be empty, until an append shows that it is not.
        """
        self._runs.pop(address, None)
        if is_new:
            self._runs[address] = Run()

    def forget(self, address: Address) -> None:
        """Drop a run from the cache: it waits, perhaps for weeks, and is read again when it continues."""
        self._runs.pop(address, None)

    def tail(self, address: Address, attempt_token: str) -> Tail:
        """Return a function that gives the newest sequence of the log, or None once the model call is superseded."""

        async def tail() -> int | None:
            run = await self.load(address, fresh=True)
            return run.seq if run.is_asked_by(attempt_token) else None

        return tail

    async def append(self, address: Address, run: Run, at: int, events: list[Event]) -> list[Event]:
        """Write a record as the successor of the newest known one, and return its events as stored.

        If another record came first, apply it and return an empty list: the caller must decide again.
        """
        seen = run.seq  # What `events` were decided from: others may fold newer records into the run from here on.
        await index.place_proposals(self._bus, *address, events)
        session = run.started.request.session_id if run.started else None
        record, data = terminal.fitting(
            await self._offloader.offloaded(Record(at=at, events=events), *address, session)
        )
        subject = subjects.log(address.tenant, address.run)
        headers = {EVENTS_HEADER: record.types(), VERSION_HEADER: VERSION}
        if open_pauses := pauses.open_after(run, events):
            headers[PAUSES_HEADER] = str(open_pauses)
        try:
            sequence = await guarded_write.write(self._bus, subject, data, Guard(subject, seen), headers=headers)
        except Outdated:
            newer = await self._read(subject, seen + 1)
            if not newer:
                # The log was purged meanwhile, so the cached run is invalid.
                self._runs.pop(address, None)
            await self._fold_tail(address, run, newer)
            return []
        if sequence > run.seq:
            # The log may only have references to the texts of parts, which a fold needs.
            texts = [event.said if isinstance(event, Step) else "" for event in events]
            whole = [
                event.model_copy(update={"said": text}) if isinstance(event, Step) and text else event
                for event, text in zip(record.events, texts, strict=True)
            ]
            fold(run, sequence, record.at, whole, self._strategy_of)
        for event in record.events:
            # A person rejected the call, or nobody approved it in time: it never came to tool_runner.
            if isinstance(event, Observed) and event.failure is not None and event.failure.code in _REFUSED:
                fields = {"call_id": event.call_id, "tool": event.tool, "code": event.failure.code}
                logger.info("call_failed", run_id=address.run, **fields)
        _log_end(address, run, record)
        return [event for event in record.events if not isinstance(event, UnknownEvent)]

    async def _read(self, subject: str, start: int) -> list[StoredMessage]:
        return await (await self._bus.reader(subjects.RUNS)).read(subject, start)

    async def keep_context(self, address: Address, context: Mapping[str, Any]) -> None:
        """Store the caller's `tool_context`. Idempotent."""
        data, subject = KeptContext(context=dict(context)).model_dump_json().encode(), subjects.context(*address)
        with suppress(Outdated):
            await guarded_write.write(self._bus, subject, data, Guard(subject, 0))

    async def context(self, address: Address) -> dict[str, Any]:
        """Read the `tool_context`. If a replica has none, ask the stream's leader, since the replica may lag behind."""
        message = await self._bus.last(subjects.RUNS, subjects.context(*address))
        newest = None if message else await self._bus.last_from_leader(subjects.RUNS, subjects.context(*address))
        data = message.data if message is not None else newest[1] if newest is not None else b""
        return KeptContext.model_validate_json(data).context if data else {}  # None: it was purged with its run.

    async def shown(self, address: Address, run: Run) -> tuple[str, int]:
        """Return the stored answer text of this turn's newest attempt, once no more of it can be stored.

        Also the sequence of the turn's newest record on the stream; 0: there is none.
        """
        reader = await self._bus.reader(subjects.RUNS)
        stored = await reader.current(subjects.stream(*address), run.turn_seq)
        return _text_shown(run.turn, [message.data for message in stored]), sequence_of(stored[-1]) if stored else 0

    async def _fold_tail(self, address: Address, run: Run, tail: list[StoredMessage]) -> None:
        for sequence, data in tail:
            if sequence <= run.seq:
                continue  # Two handlings may read the same tail.
            record = await parsed(self._bus, Record, subjects.RUNS, subjects.log(*address), sequence, data)
            if record is None:
                run.seq = sequence
                continue
            record = await self._offloader.filled(record, address.tenant)
            if sequence > run.seq:  # Another handling may have read it meanwhile.
                fold(run, sequence, record.at, record.events, self._strategy_of)


def _text_shown(turn: int, stored: list[bytes]) -> str:
    chunks = []
    for data in stored:
        if CHUNK_TYPE in data:
            chunks += [
                event
                for event in Record.model_validate_json(data).events
                if isinstance(event, Chunk) and event.action_seq + event.part == turn
            ]
    last = max((chunk.attempt for chunk in chunks), default=0)
    return "".join(chunk.text for chunk in chunks if chunk.attempt == last)


def _log_end(address: Address, run: Run, record: Record) -> None:
    """Log a line for a run that this process has just ended. It holds no prompt, argument or value."""
    end = next((event for event in record.events if isinstance(event, Done | Error | Cancelled)), None)
    if end is None:
        return
    request = run.request
    code = end.reason if isinstance(end, Done) else end.code if isinstance(end, Error) else "cancelled"
    metrics.RUNS_ENDED.labels(end.type, code).inc()
    ms = record.at - request.requested_at if request else None
    if ms is not None:
        metrics.RUN_SECONDS.labels(end.type).observe(ms / 1000)
    logger.info(
        "run_ended",
        run_id=address.run,
        tenant=address.tenant,
        agent=request.agent if request else None,
        model=run.model or None,
        status=end.type,
        code=code,
        steps=run.turn,
        model_calls=end.usage.model_calls,
        tool_calls=end.usage.tool_calls,
        prompt_tokens=end.usage.prompt_tokens,
        completion_tokens=end.usage.completion_tokens,
        cost_usd=end.usage.cost_usd,
        ms=ms,
    )
