"""Executes the commands of `advance`: calls models, sends tool calls, sets timers, writes the index.

Every effect is idempotent, since another handling may repeat it.
"""

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar, assert_never

import structlog

from contracts.runs.events import Asked, ControlAnswered
from contracts.runs.inbox import (
    CallFinished,
    CancelRequested,
    InputRequested,
    RunBegins,
    RunResumed,
    SessionAttached,
    TimerName,
)
from contracts.runs.requests import RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire import keys, subjects
from contracts.wire.ids import unix_ms
from services.messaging.connection import Bus
from services.messaging.tenants.time_slices import TimeSlice
from services.planner.effects import bookkeeping, messages
from services.planner.effects.bookkeeping import KeySpendingWriter, Opening, read_before_a_call
from services.planner.effects.call_places import CallPlaces
from services.planner.effects.chunk_publisher import ChunkPublisher, ChunkWriter
from services.planner.effects.direct_calls import DirectCalls
from services.planner.effects.dispatch import Dispatcher
from services.planner.effects.model_call import ask, say
from services.planner.effects.model_requests import ModelRequests
from services.planner.effects.sessions import Sessions
from services.planner.logs import index
from services.planner.logs.ownership_watch import Address, watched
from services.planner.logs.run_log import RunLogs
from services.planner.run import session_facts, turns
from services.planner.run.commands import (
    Answer,
    Ask,
    AskCritique,
    AskEffort,
    CheckInput,
    Close,
    Dispatch,
    Effect,
    Enter,
    Incoming,
    KeepContext,
    LoadSpecs,
    NotifySession,
    Open,
    Progress,
    ReadShown,
    Redact,
    Resolve,
    Rules,
    Say,
    SetTimer,
    ToSession,
    Wait,
    Wake,
)
from services.planner.run.ending import terminal
from services.planner.run.people.input_rules import ADMITTED, Checked
from services.planner.run.session_place import Place
from services.planner.run.state.run import Run
from services.planner.run.turn.decide import resolve_decision, text_of
from services.planner.run.turn.decision import Decision
from services.shared.budgets.spending import KeySpending

logger = structlog.get_logger(__name__)
T = TypeVar("T")
CRITIQUE_MARGIN_S = 0.5


class Effects:
    """The effects of one handling of a message."""

    def __init__(
        self,
        bus: Bus,
        logs: RunLogs,
        model_requests: ModelRequests,
        rules: Rules,
        chunks: ChunkWriter,
        where: Address,
        incoming: Incoming,
        time_slice: TimeSlice,
        places: CallPlaces,
        direct_calls: DirectCalls,
        sessions: Sessions,
        key_spending: KeySpending,
    ) -> None:
        self._bus = bus
        self._logs = logs
        self._model_requests = model_requests
        self._rules = rules
        self._chunks = chunks
        self._sessions = sessions
        self._where = where
        self._owner = incoming.owner
        self._message = incoming.message
        self._time_slice = time_slice
        self._dispatcher = Dispatcher(bus, logs, model_requests, places, direct_calls, where, time_slice)
        self._opening: Opening | None = None
        self._key_spending = key_spending
        self._spent = KeySpendingWriter(bus, key_spending)

    async def carry_out(  # noqa: C901, one case for each command
        self, run: Run, progress: Progress, command: Effect
    ) -> tuple[Progress, bool]:
        """Execute a command. Return the new progress, and whether the log must be read again before the next command.

        Not so after a model's reply: it is appended next, and the fence shows whether the run has moved on.
        """
        match command:
            case Ask() | Say() | AskEffort() | AskCritique():
                return await self._call_model(run, progress, command)
            case Dispatch():
                return await self._dispatcher.dispatch(run, progress, command)
            case Wait(until):
                self._time_slice.end()
                await asyncio.sleep(max(0.0, (until - unix_ms()) / 1000))
                return replace(progress, now=unix_ms()), True
            case Enter() | Resolve() | CheckInput() | Redact() | LoadSpecs() | ReadShown():
                progress = await self._prepared(run, progress, command)
            case NotifySession() | Answer() | Wake():
                progress = await self._sent(run, progress, command)
            case KeepContext():
                await self._logs.keep_context(self._where, self._given_context())
                progress = replace(progress, context_kept=True)
            case Open():
                if (opening := self.open_soon(run)) is not None:
                    await opening.now()
                elif run.request is not None:
                    await index.create_run(self._bus, run, run.request)
                progress = replace(progress, opened=True)
            case SetTimer(name, at):
                await self._set_timer(run, name, at)
                progress = replace(progress, timers=progress.timers | {(name, at)})
            case Close():
                await self._close(run, progress)
                progress = replace(progress, closed=True)
            case _:
                assert_never(command)
        return progress, False

    async def _sent(self, run: Run, progress: Progress, command: NotifySession | Answer | Wake) -> Progress:
        """Send what others wait for, and return the progress."""
        match command:
            case NotifySession(name, message):
                await self._notify_session(self._session_of(run), name, message)
                return replace(progress, notified=progress.notified | {name})
            case Answer():
                await self._answer(command)
                return replace(progress, answered=True)
            case Wake(at):
                await self._wake(at)
                return replace(progress, woken=True)
            case _:
                assert_never(command)

    async def _prepared(
        self, run: Run, progress: Progress, command: Enter | Resolve | CheckInput | Redact | LoadSpecs | ReadShown
    ) -> Progress:
        """Return the progress with what the next command depends on."""
        match command:
            case Enter(is_queued):
                place = await self._enter(run, is_queued=is_queued)
                return replace(progress, place=place, now=unix_ms())
            case Resolve():
                return await self._resolve(run, progress)
            case CheckInput():
                return replace(progress, checked=await self._checked_input(run))
            case Redact():
                return replace(progress, outcome=await self._redacted(run))
            case LoadSpecs():
                return replace(progress, specs=await self._specs(run))
            case ReadShown():
                shown, shown_seq = await self._logs.shown(self._where, run)
                return replace(progress, shown=shown, shown_seq=shown_seq)
            case _:
                assert_never(command)

    def open_soon(self, run: Run) -> Opening | None:
        """Write the index entry and the deadline timer of a requested run once it has lived for a second."""
        if self._opening is None and isinstance(self._message, RunRequested | RunBegins) and run.started is not None:
            self._opening = Opening(self._bus, self._logs, self._where, run.started_at)
        return self._opening

    def store_spending_soon(self, run: Run) -> None:
        """Store what the run has spent for its API key, if the key has a budget."""
        self._spent.store_soon(run)

    async def finish(self) -> None:
        """End what goes on in the background. Only then may the message be acknowledged."""
        if self._opening is not None:
            await self._opening.end()
        await self._spent.end()

    async def _call_model(
        self, run: Run, progress: Progress, command: Ask | Say | AskEffort | AskCritique
    ) -> tuple[Progress, bool]:
        """Call a model. The log is read again when another handling superseded the call.

        No model is called before it is known what the run's API key has spent: then `advance` decides again.
        """
        self._time_slice.end_soon()
        if not isinstance(command, Say) and await read_before_a_call(self._key_spending, run.request):
            return replace(progress, now=unix_ms()), True
        answered = await self._answered(run, progress, command)
        return replace(answered or progress, now=unix_ms()), answered is None

    async def _answered(
        self, run: Run, progress: Progress, command: Ask | Say | AskEffort | AskCritique
    ) -> Progress | None:
        asked = command.asked
        match command:
            case Ask():
                decision = await self._decision(run, asked)
                return replace(progress, decision=decision) if decision is not None else None
            case Say(_, answer):
                decision = replace(answer, restate=False)
                said = await say(
                    self._publisher(run, asked), decision, text_of(run, answer), is_recorded_next=not _has_critique(run)
                )
                return replace(progress, decision=said, answer_to_restate=None) if said is not None else None
            case AskEffort():
                triaged = await self._watched(asked, self._model_requests.triage(run))
                return replace(progress, triaged=triaged) if triaged is not None else None
            case AskCritique(_, args):
                # It ends before the deadline, which would discard the answer.
                left_ms = math.inf if run.deadline_at is None else run.deadline_at - unix_ms()
                left_s = left_ms / 1000 - CRITIQUE_MARGIN_S
                answer_text = terminal.answered(run, args).raw_answer
                critique = await self._watched(asked, self._model_requests.critique(run, answer_text, left_s))
                return replace(progress, critique=critique) if critique is not None else None
            case _:
                assert_never(command)

    async def _watched(self, asked: Asked, work: Coroutine[Any, Any, T]) -> T | None:
        return await watched(self._bus, self._where, self._logs.tail(self._where, asked.holder), work)

    async def _decision(self, run: Run, asked: Asked) -> Decision | None:
        publisher = self._publisher(run, asked)
        warnings: list[str] = []
        stream, reading = await self._model_requests.think(run, unix_ms(), warnings.extend)
        expiring = asyncio.create_task(self._expire(run, publisher))

        def answer_of(decision: Decision) -> tuple[Decision, str]:
            # The reply came in time. The deadline may pass while its rest is stored; that does not change it.
            expiring.cancel()
            decision = resolve_decision(run, decision, unix_ms(), self._rules)
            fresh = [warning for warning in warnings if warning not in run.warnings]
            if fresh:
                decision = replace(decision, warnings=(*decision.warnings, *fresh))
            return decision, text_of(run, decision)

        try:
            decision = await ask(
                self._bus,
                self._where,
                publisher,
                stream,
                reading,
                answer_of,
                is_recorded_next=not _has_critique(run),
            )
        finally:
            expiring.cancel()
        if decision is None:
            logger.info("model_call_abandoned", turn=asked.turn, attempt=asked.attempt)
        return decision

    async def _expire(self, run: Run, publisher: ChunkPublisher) -> None:
        """Abandon the call when the run's deadline passes, even if its timer message is late."""
        while run.deadline_at is not None:
            left_ms = run.deadline_at - unix_ms()
            if left_ms <= 0:
                await self._time_slice.take()  # Runs that one tenant requested together reach their deadlines together.
                publisher.abandon()
                return
            await asyncio.sleep(left_ms / 1000)
            run = await self._logs.load(self._where, fresh=True)  # It may have been topped up.

    def _publisher(self, run: Run, asked: Asked) -> ChunkPublisher:
        return ChunkPublisher(self._chunks, self._where, asked, run.seq, self._logs.tail(self._where, asked.holder))

    async def _wake(self, at: int) -> None:
        where = self._where
        subject = subjects.inbox(where.tenant, where.run, f"resumed-{self._owner.partition(':')[2]}")
        await self._bus.publish_surely(
            subject, RunResumed(at=at).model_dump_json().encode(), f"{where.run}-resumed-{self._owner}"
        )

    async def _answer(self, answer: Answer) -> None:
        answered = ControlAnswered(id=answer.id, code=answer.code, reason=answer.reason, is_repeated=answer.is_repeated)
        data, headers = self._chunks.record_of(answered.model_dump(mode="json"))
        message_id = f"{self._where.run}.answered.{self._owner}"
        await self._bus.publish_surely(subjects.stream(*self._where), data, message_id, headers)

    async def _enter(self, run: Run, *, is_queued: bool) -> Place | None:
        request = run.request or self._message
        if not isinstance(request, RunRequested):
            return None
        return await self._sessions.enter(request, self._owner, is_queued=is_queued)

    def _session_of(self, run: Run) -> str | None:
        """Return the session that receives what happens to the run; the log may not name it yet."""
        message = self._message
        named = SessionAttached | RunRequested | InputRequested | CancelRequested
        if run.session_id is None and isinstance(message, named):
            return message.session_id
        return run.session_id

    async def _notify_session(self, session_id: str | None, name: str, message: ToSession) -> None:
        if session_id is None:
            return
        where = self._where
        subject = subjects.session_inbox(where.tenant, keys.session_key(session_id), f"{where.run}-{name}")
        await self._bus.publish_surely(subject, message.model_dump_json().encode(), f"{where.run}.{name}")

    async def _resolve(self, run: Run, progress: Progress) -> Progress:
        request = turns.request_of(run, self._message)
        if request is None:
            return progress
        if self._model_requests.lacks_tools(request):
            self._time_slice.end_soon()
            await self._model_requests.await_tools(request)
            progress = replace(progress, now=unix_ms())
        opening = self._model_requests.open(request)
        place = turns.place_of(self._message, progress)
        started = turns.opened(opening.started, run, place, progress.now)
        texts = [request.query, *(added.text for added in run.inputs.unread)]
        if opening.refusal is None:
            checked = await self._model_requests.check_texts(started, texts)
            opening = replace(opening, refusal=checked.refusal, checked=checked)
        opening = replace(opening, inputs=len(run.inputs.unread))
        return replace(progress, opening=replace(opening, started=started))

    async def _checked_input(self, run: Run) -> Checked:
        message = self._message
        if not isinstance(message, InputRequested) or run.started is None:
            return ADMITTED
        if message.images and (refusal := self._model_requests.refused_images(run)) is not None:
            return Checked(refusal)
        return await self._model_requests.check_texts(run.started, [message.text])

    async def _redacted(self, run: Run) -> CallFinished | None:
        finished = self._message
        if not isinstance(finished, CallFinished) or run.started is None:
            return None
        return await self._model_requests.redacted(run.started, finished)

    async def _specs(self, run: Run) -> dict[str, ToolSpec]:
        return await self._model_requests.specs(run.started) if run.started is not None else {}

    def _given_context(self) -> dict[str, Any]:
        return self._message.tool_context if isinstance(self._message, RunRequested) else {}

    async def _set_timer(self, run: Run, name: TimerName, at: int) -> None:
        if run.request is not None:
            await messages.set_timer(self._bus, run.request, name, at)

    async def _close(self, run: Run, progress: Progress) -> None:
        await self._dispatcher.call_off(run)
        is_opened = self._opening is not None and await self._opening.end()
        # Another handling may have set timers of a run that it queued, began or topped up.
        was_handled = run.queued is not None or not progress.began
        has_timers = is_opened or was_handled or bool(progress.timers or run.topped_up_by)
        if run.request is not None:
            await bookkeeping.close(self._bus, run, run.request, has_timers=has_timers)
        elif self._given_context():
            await messages.purge(self._bus, subjects.RUNS, subjects.context(*self._where))
        await self._notify_of_end(run)

    async def _notify_of_end(self, run: Run) -> None:
        # The log of a run that was cancelled before its request arrived does not hold it.
        request = run.request or (self._message if isinstance(self._message, RunRequested) else None)
        ended = session_facts.end_message(self._where.run, run, request)
        if ended is not None:
            await self._notify_session(self._session_of(run), "ended", ended)


def _has_critique(run: Run) -> bool:
    """Whether a critique of the answer may come before the answer is recorded."""
    return run.started is not None and run.started.reflection is not None
