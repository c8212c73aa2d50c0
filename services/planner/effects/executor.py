"""Handles a message of a run: gets the next command from `advance` and executes it, until there is nothing left.

The commands call models, send tool calls, set timers and write the index. Every effect is idempotent, since another
handling may repeat it.
"""

import asyncio
import math
import time
from collections.abc import Coroutine
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar, assert_never

import structlog

from contracts.runs import inbox
from contracts.runs.events import Asked, ControlAnswered, Redelivered
from contracts.runs.requests import RunRequested
from contracts.wire import keys, subjects
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus
from services.messaging.fairness import TimeSlice
from services.planner.effects import bookkeeping, messages, model_call
from services.planner.effects.chunk_publisher import ChunkPublisher
from services.planner.effects.dispatch import Dispatcher
from services.planner.effects.parts import Parts
from services.planner.logs import index
from services.planner.logs.ownership_watch import Address, watched
from services.planner.logs.session_log import SessionAddress
from services.planner.resolution import max_characters
from services.planner.run import commands, opening
from services.planner.run.advance import advance
from services.planner.run.commands import Ask, AskCritique, AskEffort, Incoming, Progress, Rules, Say
from services.planner.run.ending import terminal
from services.planner.run.people.input_rules import ADMITTED, Checked, texts_of
from services.planner.run.state.run import Begun, Run
from services.planner.run.turn.decide import resolve_decision, text_of
from services.planner.run.turn.decision import Decision, Failed, Invalid
from services.runtime.tasks import Later
from services.shared import metrics
from services.shared.budgets.totals import KeyDay

logger = structlog.get_logger(__name__)
T = TypeVar("T")
CRITIQUE_MARGIN_S = 0.5


async def handle(parts: Parts, address: Address, incoming: Incoming, time_slice: TimeSlice) -> bool:
    """Handle a message. True: acknowledge it; False: another handling owns it."""
    effects = Effects(parts, address, incoming, time_slice)
    if isinstance(incoming.message, inbox.CallFinished | inbox.CallPaused):
        parts.call_places.give_back(address.tenant, incoming.message.tool)
    if isinstance(incoming.message, RunRequested):
        parts.logs.begin(address, is_new=incoming.is_first)
    progress, fresh, is_current, read_at = Progress(unix_ms()), not incoming.is_first, False, time.monotonic()
    lock, rules = parts.logs.lock(address), parts.rules
    while True:
        await time_slice.take()
        async with lock:
            run = await parts.logs.load(address, fresh=fresh)
            read_at = time.monotonic() if fresh else read_at
            effects.spent.store_soon(run)
            if incoming.is_first and "" < run.last_handling.get(incoming.owner, "") < incoming.attempt_token:
                # Its process was stopped before it began. Meanwhile another one has handled the message, and may have
                # acknowledged it.
                incoming = replace(incoming, is_first=False)
            is_current = is_current or fresh
            rules = _rules_of(parts, run, progress, rules, is_first=incoming.is_first)
            command = advance(run, commands.Handling(incoming, progress), rules)
            if isinstance(command, commands.Append):
                waited = run.waits
                written = await parts.logs.append(address, run, progress.now, command.events)
                effects.is_state_new |= waited != run.waits
                progress, fresh, is_current, read_at = progress.wrote(written), False, True, time.monotonic()
                effects.open_soon(run)
                is_redelivered = any(isinstance(event, Redelivered) for event in written)
                if not is_redelivered or await _is_pending(parts.bus, incoming):
                    continue
                command = commands.Abandon()  # An earlier handling has acknowledged the message.
        has_written = isinstance(command, commands.Ack | commands.Abandon) and await effects.finish(run)
        # After a while, or a lost connection, the message may have been delivered again: what the later handling has
        # recorded must be known.
        known_from = max(time.monotonic() - parts.bus.settings.ack_wait_s / 2, parts.bus.up_since)
        is_old = isinstance(command, commands.Ack) and (has_written or read_at < known_from)
        if is_old or (not is_current and not isinstance(command, commands.DECIDES_NOTHING)):
            fresh = True
            continue
        if isinstance(command, commands.Ack | commands.Abandon):
            if run.is_at_rest:
                parts.logs.forget(address)
            return isinstance(command, commands.Ack)
        progress, fresh = await effects.carry_out(run, progress, command)


async def _is_pending(bus: Bus, incoming: Incoming) -> bool:
    """Return whether a message is still in its work queue."""
    stream, _, sequence = incoming.owner.partition(":")
    return await bus.until_answered(lambda: bus.get_from_leader(stream, {"seq": int(sequence)})) is not None


def _rules_of(parts: Parts, run: Run, progress: Progress, before: Rules, *, is_first: bool) -> Rules:
    """Return the rules with what changes: the run's strategy, direct calls, spending; `before` if nothing has."""
    started = run.started or (progress.opening.started if progress.opening is not None else None)
    request, model = run.request, run.model or (started.model if started is not None else "")
    now: dict[str, Any] = {
        "strategy": parts.model_requests.strategy(started),
        "max_characters": max_characters(model, parts.rules.max_characters),
        "direct": parts.direct_calls.rules() if is_first else None,
        "key_spending": parts.key_spending.known(KeyDay.of(request)) if request and request.key_budget else None,
    }
    return before if all(getattr(before, name) == value for name, value in now.items()) else replace(before, **now)


class Effects:
    """The effects of one handling of a message."""

    def __init__(self, parts: Parts, address: Address, incoming: Incoming, time_slice: TimeSlice) -> None:
        self._parts = parts
        self._address = address
        self._owner = incoming.owner
        self._message = incoming.message
        self._time_slice = time_slice
        self._dispatcher = Dispatcher(parts, address, time_slice)
        self._opening: bookkeeping.Opening | None = None
        self.spent = bookkeeping.KeySpendingWriter(parts.bus, parts.key_spending)
        self.is_state_new = not incoming.is_first
        """Whether the run has begun or ceased to wait, perhaps by an earlier handling that did not come to an end."""

    async def carry_out(  # noqa: C901, PLR0912, PLR0915, one case for each command
        self, run: Run, progress: Progress, command: commands.Effect
    ) -> tuple[Progress, bool]:
        """Execute a command. Return the new progress, and whether the log must be read again before the next command.

        Not so after a model's reply: it is appended next, and the append shows whether the run has moved on.
        """
        match command:
            case Ask() | Say() | AskEffort() | AskCritique():
                return await self._call_model(run, progress, command)
            case commands.Dispatch():
                return await self._dispatcher.dispatch(run, progress, command)
            case commands.Wait(until):
                self._time_slice.end()
                await asyncio.sleep(max(0.0, (until - unix_ms()) / 1000))
                return progress.but(now=unix_ms()), True
            case commands.Enter(is_queued):
                request, place = run.request or self._message, None
                if isinstance(request, RunRequested):
                    place = await self._parts.sessions.enter(request, self._owner, is_queued=is_queued)
                progress = progress.but(place=place, opening=None, now=unix_ms())
            case commands.Resolve():
                progress = await self._resolve(run, progress)
            case commands.CheckInput():
                progress = progress.but(checked=await self._checked_input(run))
            case commands.LoadSpecs():
                specs = await self._parts.model_requests.specs(run.started) if run.started is not None else {}
                progress = progress.but(specs=specs)
            case commands.ReadShown():
                progress = await self._read_shown(run, progress)
            case commands.NotifySession(name, message):
                await self._notify_session(run, name, message)
                progress = progress.but(notified=progress.notified | {name})
            case commands.Answer():
                answered = ControlAnswered(**asdict(command))
                data, headers = self._parts.chunks.record_of(answered.model_dump(mode="json"))
                message_id = f"{self._address.run}.answered.{self._owner}"
                await self._parts.bus.publish_surely(subjects.stream(*self._address), data, message_id, headers)
                progress = progress.but(answered=True)
            case commands.Wake(at):
                subject = subjects.inbox(*self._address, f"resumed-{self._owner.partition(':')[2]}")
                message_id = f"{self._address.run}-resumed-{self._owner}"
                await self._parts.bus.publish_surely(subject, inbox.RunResumed(at=at), message_id)
                progress = progress.but(woken=True)
            case commands.KeepContext():
                await self._parts.logs.keep_context(self._address, self._given_context())
                progress = progress.but(context_kept=True)
            case commands.Open():
                if (soon := self.open_soon(run)) is not None:
                    await soon.now()
                elif run.request is not None:
                    await index.create_run(self._parts.bus, run, run.request)
                progress = progress.but(opened=True)
            case commands.SetTimer(timer, at):
                if run.request is not None:
                    await messages.set_timer(self._parts.bus, run.request, timer, at)
                progress = progress.but(timers=progress.timers | {(timer, at)})
            case commands.Close():
                await self._close(run, progress)
                progress = progress.but(closed=True)
            case _:
                assert_never(command)
        return progress, False

    def open_soon(self, run: Run) -> bookkeeping.Opening | None:
        """Write the index entry and the deadline timer of a requested run once it has lived for a second."""
        is_request = isinstance(self._message, RunRequested | inbox.RunBegins)
        if self._opening is None and is_request and run.started is not None:
            self._opening = bookkeeping.Opening(self._parts, self._address, run.started.request, run.started_at)
        return self._opening

    async def finish(self, run: Run) -> bool:
        """End all writes, which may take long: only what is decided afterwards may acknowledge the message.

        Return whether the entry of an open run whose state is new had to be written.
        """
        if self._opening is not None and not await self._opening.end():
            self._opening = None  # It begins again if the handling goes on.
        await self.spent.end()
        if not self.is_state_new or run.request is None or run.terminal is not None:
            return False
        self.is_state_new = False
        await index.rewrite_run(self._parts.bus, run.request, partial(self._parts.logs.load, self._address, fresh=True))
        return True

    async def _call_model(
        self, run: Run, progress: Progress, command: Ask | Say | AskEffort | AskCritique
    ) -> tuple[Progress, bool]:
        """Call a model. The log is read again when another handling superseded the call.

        No model is called before it is known what the run's API key has spent: then `advance` decides again.
        """
        self._time_slice.end_soon()
        if not isinstance(command, Say) and await bookkeeping.read_before_a_call(self._parts.key_spending, run.request):
            return progress.but(now=unix_ms()), True
        answered = await self._answered(run, command)
        return progress.but(now=unix_ms(), **answered), not answered

    async def _answered(self, run: Run, command: Ask | Say | AskEffort | AskCritique) -> dict[str, Any]:
        """Return what a model's reply changes in the progress; empty if another handling superseded the call."""
        asked, model_requests = command.asked, self._parts.model_requests
        match command:
            case Ask():
                decision = await self._decision(run, asked)
                return {"decision": decision} if decision is not None else {}
            case Say(_, answer):
                said = await model_call.say(
                    self._publisher(run, asked),
                    replace(answer, restate=False),
                    text_of(run, answer),
                    is_recorded_next=not _has_critique(run),
                )
                return {"decision": said, "answer_to_restate": None} if said is not None else {}
            case AskEffort():
                triaged = await self._watched(asked, model_requests.triage(run))
                return {"triaged": triaged} if triaged is not None else {}
            case AskCritique(_, args):
                # It ends before the deadline, which would discard the answer.
                within_s, given = _left_s(run) - CRITIQUE_MARGIN_S, terminal.answered(run, args).raw_answer
                critique = await self._watched(asked, model_requests.critique(run, given, within_s))
                return {"critique": critique} if critique is not None else {}
            case _:
                assert_never(command)

    async def _watched(self, asked: Asked, work: Coroutine[Any, Any, T]) -> T | None:
        tail = self._parts.logs.tail(self._address, asked.holder)
        return await watched(self._parts.bus, self._address, tail, work)

    async def _decision(self, run: Run, asked: Asked) -> Decision | None:
        publisher = self._publisher(run, asked)
        warnings: list[str] = []
        stream, reading = await self._parts.model_requests.think(run, unix_ms(), warnings.extend)
        expiring = Later(_left_s(run), partial(self._expire, publisher))

        def answer_of(decision: Decision) -> tuple[Decision, str]:
            # The reply came in time. The deadline may pass while its rest is stored; that does not change it.
            expiring.cancel()
            decision = resolve_decision(run, decision, unix_ms(), self._parts.rules)
            fresh = [warning for warning in warnings if warning not in run.warnings]
            if fresh:
                decision = replace(decision, warnings=(*decision.warnings, *fresh))
            return decision, text_of(run, decision)

        try:
            decision = await model_call.ask(
                self._parts.bus,
                self._address,
                publisher,
                stream,
                reading,
                answer_of,
                is_recorded_next=not _has_critique(run),
            )
        finally:
            expiring.cancel()
        for form in _counted(decision) if decision is not None else ():
            metrics.labelled(metrics.REPLY_FORMS, metrics.named("model", asked.model or run.model), form).inc()
        if decision is None:
            logger.info("model_call_abandoned", turn=asked.turn, attempt=asked.attempt)
        return decision

    async def _expire(self, publisher: ChunkPublisher) -> None:
        """Abandon the call once the deadline of its log has passed, even if its timer message is late."""
        load = partial(self._parts.logs.load, self._address, fresh=True)
        while (left_s := _left_s(await load())) > 0:  # noqa: ASYNC110, the clock is no event
            await asyncio.sleep(left_s)
        await self._time_slice.take()  # Runs that one tenant requested together reach their deadlines together.
        publisher.abandon()

    def _publisher(self, run: Run, asked: Asked) -> ChunkPublisher:
        tail = self._parts.logs.tail(self._address, asked.holder)
        offset = run.strategy_state.shown_to
        # Others may have read on since this call was decided: then its first chunk asks the log whose call it is.
        seen = run.seq if run.is_asked_by(asked.holder) else 0
        return ChunkPublisher(self._parts.chunks, self._address, asked, seen, tail, offset=offset)

    async def _notify_session(self, run: Run, name: str, message: commands.ToSession) -> None:
        """Let the run's session, if it has one, handle a message here and now; the log may not name it yet.

        That of a run which was set aside is sent: what ended the processes that handled the run must not end this one.
        """
        session_id, received = run.session_id, self._message
        names_session = inbox.SessionAttached | RunRequested | inbox.InputRequested | inbox.CancelRequested
        if session_id is None and isinstance(received, names_session):
            session_id = received.session_id
        key = keys.session_key(session_id) if session_id is not None else ""
        if isinstance(received, commands.Poisoned):
            if key := key or received.session:
                tenant, run_id = self._address
                subject = subjects.session_inbox(tenant, key, f"{run_id}-{name}")
                await self._parts.bus.publish_surely(subject, message, f"{run_id}.{name}")
        elif key:
            await self._parts.sessions.on_message(SessionAddress(self._address.tenant, key), message, self._owner)

    async def _resolve(self, run: Run, progress: Progress) -> Progress:
        request, model_requests = opening.request_of(run, self._message), self._parts.model_requests
        if request is None:
            return progress
        if model_requests.lacks_tools(request):
            self._time_slice.end_soon()
            await model_requests.await_tools(request)
            progress = progress.but(now=unix_ms())
        found = model_requests.open(request)
        if request.page is not None:
            self._time_slice.end_soon()
            found = await model_requests.with_page(found)
            progress = progress.but(now=unix_ms())
        place, view = opening.place_of(self._message, progress), found.started.page_view
        if view is not None and isinstance(place, Begun):
            view = await self._parts.sessions.with_proposals(request, view, place.session_seq)
            found = replace(found, started=found.started.model_copy(update={"page_view": view}))
        started = opening.opened(found.started, run, place, progress.now)
        if found.refusal is None:
            texts = [*texts_of(request), *(added.text for added in run.inputs.unread)]
            checked = await model_requests.check_texts(started, texts)
            found = replace(found, refusal=checked.refusal, checked=checked)
        return progress.but(opening=replace(found, inputs=len(run.inputs.unread), started=started))

    async def _read_shown(self, run: Run, progress: Progress) -> Progress:
        shown, shown_seq = await self._parts.logs.shown(self._address, run)
        unfinished = await self._parts.model_requests.unfinished(run, shown)
        return progress.but(shown=shown, shown_seq=shown_seq, unfinished=unfinished)

    async def _checked_input(self, run: Run) -> Checked:
        message = self._message
        if not isinstance(message, inbox.InputRequested) or run.started is None:
            return ADMITTED
        if message.images and (refusal := self._parts.model_requests.refused_images(run)) is not None:
            return Checked(refusal)
        return await self._parts.model_requests.check_texts(run.started, [message.text])

    def _given_context(self) -> dict[str, Any]:
        return self._message.tool_context if isinstance(self._message, RunRequested) else {}

    async def _close(self, run: Run, progress: Progress) -> None:
        await self._dispatcher.call_off(run)
        is_opened = self._opening is not None and await self._opening.end()
        # Another handling may have set timers of a run that it queued, began or topped up.
        was_handled = run.queued is not None or not progress.began
        has_timers = is_opened or was_handled or bool(progress.timers or run.topped_up_by)
        if run.request is not None:
            await bookkeeping.close(self._parts.bus, run, run.request, has_timers=has_timers)
        elif self._given_context():
            await messages.purge(self._parts.bus, subjects.RUNS, subjects.context(*self._address))
        # The log of a run that was cancelled before its request arrived does not hold it.
        request = run.request or (self._message if isinstance(self._message, RunRequested) else None)
        ended = terminal.end_message(self._address.run, run, request)
        if ended is not None:
            await self._notify_session(run, "ended", ended)


def _counted(decision: Decision) -> list[str]:
    """Return what is counted of a reply: its form and the rules that it needed, or that it could not be used."""
    if isinstance(decision, Invalid | Failed):
        return ["invalid" if isinstance(decision, Invalid) else "failed"]
    return [] if decision.form is None else [decision.form.form, *decision.form.rules]


def _left_s(run: Run) -> float:
    return math.inf if run.deadline_at is None else (run.deadline_at - unix_ms()) / 1000


def _has_critique(run: Run) -> bool:
    """Whether a critique of the answer may come before the answer is recorded."""
    return run.started is not None and run.started.reflection is not None
