"""Carry out what `advance` says: ask models, send calls, set timers, keep the index. Each effect may be repeated by another handling."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from contracts import subjects
from contracts.events import Asked, ModelFailed, PlannedCall
from contracts.inbox import RunResumed
from contracts.tools import CallQuestion, CallRequested
from services.messaging.connection import Bus
from services.messaging.tenant_turns import Turn
from services.planner.effects import run_index
from services.planner.effects.call_places import CallPlaces
from services.planner.effects.model_call import Address, ChunkSender, ask, say, watched
from services.planner.effects.model_requests import Thinker
from services.planner.models.retries import Note
from services.planner.run import terminal
from services.planner.run.commands import (
    Ask,
    AskCritique,
    AskEffort,
    AwaitTools,
    Close,
    Dispatch,
    KeepContext,
    Open,
    ReadShown,
    Rules,
    Say,
    SetTimer,
    Told,
    Wake,
)
from services.planner.run.decide import comes_to, pause_s, text_of
from services.planner.run.decision import Decision
from services.planner.run.state import Run
from services.planner.run_log import RunLogs
from services.shared.builtin_tools import READ_ARTIFACT, READ_ARTIFACT_DIGEST

logger = structlog.get_logger(__name__)
T = TypeVar("T")
_BEFORE_DEADLINE_S = 0.5
_IN_LINE_S = 10.0
"""A call that has waited so long for its place finds out whether its run still wants it."""


def now() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


async def _later(pause: float, stream: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same stream, begun after a pause in seconds."""
    await asyncio.sleep(pause)
    async with aclosing(stream) as pieces:
        async for piece in pieces:
            yield piece


class Effects:
    """The effects of one handling of a message.

    `carry_out` returns whether the log must be read again before the next decision: a reply of the model ends in an append, whose fence
    tells whether the run has moved on; without one the tail decides.
    """

    def __init__(
        self,
        bus: Bus,
        logs: RunLogs,
        thinker: Thinker,
        rules: Rules,
        chunk_ttl_s: int,
        where: Address,
        told: Told,
        turn: Turn,
        places: CallPlaces,
    ) -> None:
        self._bus = bus
        self._logs = logs
        self._thinker = thinker
        self._rules = rules
        self._chunk_ttl_s = chunk_ttl_s
        self._where = where
        self._told = told
        self._turn = turn
        self._places = places
        self._background: list[asyncio.Task[None]] = []

    async def carry_out(self, run: Run, todo: Any) -> bool:
        """Start an effect."""
        if isinstance(todo, Ask | Say | AskEffort | AskCritique):
            return not await self._ask(run, todo)
        match todo:
            case Dispatch(calls, again):
                sent = await asyncio.gather(*(self._dispatch_in_line(run, call, again=call.call_id in again) for call in calls))
                return not all(sent)
            case Wake():
                await self._wake()
            case ReadShown():
                self._told.shown = await self._logs.shown(self._where, run)
            case _:
                await self._keep(run, todo)
        return False

    async def finish(self) -> None:
        """Return once everything that was begun is done: only then may the message be acknowledged."""
        await asyncio.gather(*self._background)

    async def _ask(self, run: Run, todo: Ask | Say | AskEffort | AskCritique) -> bool:
        """Speak with a model. Returns whether there is a result: not so when the call is not ours any more."""
        self._turn.end_soon()
        has_result = await self._result(run, todo, todo.asked)
        self._told.now = now()
        return has_result

    async def _result(self, run: Run, todo: Ask | Say | AskEffort | AskCritique, asked: Asked) -> bool:
        told = self._told
        match todo:
            case Ask():
                told.decision = await self._decision(run, asked)
                return told.decision is not None
            case Say(_, answer):
                if not await say(self._sender(run, asked), text_of(run, answer)):
                    return False
                told.decision, told.unsaid = replace(answer, restate=False), None
                return True
            case AskEffort():
                told.triaged = await watched(self._bus, self._where, self._logs.tail(self._where, asked.holder), self._thinker.triage(run))
                return told.triaged is not None
            case AskCritique(_, args):
                # It ends before the deadline does, which would take the answer away.
                left_s = math.inf if run.deadline_at is None else (run.deadline_at - now()) / 1000 - _BEFORE_DEADLINE_S
                critique = self._thinker.critique(run, terminal.answered(run, args).raw_answer, left_s)
                told.critique = await watched(self._bus, self._where, self._logs.tail(self._where, asked.holder), critique)
                return told.critique is not None

    async def _decision(self, run: Run, asked: Asked) -> Decision | None:
        sender = self._sender(run, asked)
        warnings: list[str] = []
        stream, reading = await self._thinker.think(run, lambda note: self._on_failure(sender, asked, note), warnings.extend)

        if asked.cause == "provider":
            stream = _later(pause_s(run, run.failures), stream)

        expiring = asyncio.create_task(self._expire(run, sender))

        def answer_of(decision: Decision) -> tuple[Decision, str]:
            # The reply came in time; the deadline may pass while the rest of it is stored, and changes nothing about it any more.
            expiring.cancel()
            decision = comes_to(run, decision, now(), self._rules)
            fresh = [warning for warning in warnings if warning not in run.warnings]
            if fresh:
                decision = replace(decision, warnings=(*decision.warnings, *fresh))
            return decision, text_of(run, decision)

        try:
            decision = await ask(self._bus, self._where, sender, stream, reading, answer_of)
        finally:
            expiring.cancel()
        if decision is None:
            logger.info("model_call_abandoned", turn=asked.turn, attempt=asked.attempt)
        return decision

    async def _expire(self, run: Run, sender: ChunkSender) -> None:
        """Abandon the call when the run's deadline passes: its timer may wait behind models that hold all places."""
        while run.deadline_at is not None:
            left_ms = run.deadline_at - now()
            if left_ms <= 0:
                await self._turn.take()  # Runs of one tenant that were asked for together come to their deadlines together.
                sender.abandon()
                return
            await asyncio.sleep(left_ms / 1000)
            run = await self._logs.load(self._where, fresh=True)  # It may have been topped up.

    def _sender(self, run: Run, asked: Asked) -> ChunkSender:
        return ChunkSender(self._bus, self._where, asked, run.seq, self._logs.tail(self._where, asked.holder), self._chunk_ttl_s)

    async def _on_failure(self, sender: ChunkSender, asked: Asked, note: Note) -> None:
        """Record that a request to a model failed and what is done about it, while the call is ours."""
        fact = ModelFailed(
            turn=asked.turn,
            attempt=asked.attempt,
            model=note.failed,
            fault=note.fault,
            then=note.kind,
            next_model=note.model,
            wait_s=note.wait_s,
        )
        async with self._logs.lock(self._where) as lock, lock:
            run = await self._logs.load(self._where, fresh=True)
            if run.is_asked_by(asked.holder):
                await self._logs.append(self._where, run, now(), [fact])
        await sender.look()

    async def _context(self, run: Run) -> dict[str, Any]:
        """What the caller gave for tools alone. Logs of before hold it in the request."""
        if run.started is None or not run.started.has_tool_context:
            return run.started.request.tool_context if run.started else {}
        return await self._logs.context(self._where)

    async def _dispatch_in_line(self, run: Run, planned: PlannedCall, *, again: bool) -> bool:
        """Send a call once there is a place for it. Returns whether there was one at once: else the run may have moved on."""
        where, concurrency = self._where, await self._thinker.concurrency(run, planned.tool)
        at_once = self._places.take(where.tenant, planned.tool, concurrency)
        if not at_once:
            self._turn.end()
            if not await self._places.wait(where.tenant, planned.tool, _IN_LINE_S):
                return False
            async with self._logs.lock(where) as lock, lock:
                run = await self._logs.load(where, fresh=True)
            if run.terminal is not None:
                self._places.give_back(where.tenant, planned.tool)
                return False
        await self._dispatch(run, planned, await self._context(run), again=again or not at_once)
        self._told.dispatched.add(planned.call_id)
        return at_once

    async def _dispatch(self, run: Run, planned: PlannedCall, context: dict[str, Any], *, again: bool) -> None:
        call, started, step = run.open.get(planned.call_id), run.started, run.step
        if call is None or started is None or step is None:
            return  # Settled meanwhile.
        request = started.request
        message = CallRequested(
            call_id=call.call_id,
            run_id=self._where.run,
            tenant=self._where.tenant,
            tool=call.tool,
            args=call.args,
            spec=started.tools.get(call.tool, READ_ARTIFACT_DIGEST),
            step=step.step,
            deadline_at=run.deadline_at,
            again=again,
            readable=call.tool == READ_ARTIFACT and call.args.get("artifact_id") in run.collected.readable,
            session_id=request.session_id,
            trace_id=request.trace_id,
            user_id=request.user_id,
            context=context,
        )
        subject = subjects.call(self._where.tenant, self._where.run, call.tool)
        await self._bus.publish_surely(subject, message.model_dump_json().encode(), f"{self._where.run}.{call.call_id}")

    async def _call_off(self, run: Run) -> None:
        """Tell the tools that hold calls of a run that has ended. Its tool runners do that too, unless they are stopped at this moment."""
        for call in run.open.values():
            if call.call_id in run.owner:
                question = CallQuestion(idempotency_key=f"{self._where.run}.{call.call_id}")
                await self._bus.tell(subjects.tool_cancel(call.tool), question.model_dump_json().encode())

    async def _wake(self) -> None:
        told, where = self._told, self._where
        subject = subjects.inbox(where.tenant, where.run, f"resumed-{told.owner.partition(':')[2]}")
        await self._bus.publish_surely(subject, RunResumed().model_dump_json().encode(), f"{where.run}-resumed-{told.owner}")
        told.woken = True

    async def _await_tools(self) -> None:
        told = self._told
        if told.request is not None:
            self._turn.end_soon()
            await self._thinker.await_tools(told.request)
            told.started, told.refusal = self._thinker.open(told.request)
            told.now = now()
        told.waited = True

    async def _keep(self, run: Run, todo: Any) -> None:
        """Timers and the index, which follow from the log."""
        started = run.started
        match todo:
            case AwaitTools():
                await self._await_tools()
            case KeepContext():
                await self._logs.keep_context(self._where, self._told.context)
                self._told.kept = True
            case Open():
                self._told.opened = True
                if started is not None:
                    self._background.append(asyncio.create_task(run_index.enter(self._bus, run, started)))
            case SetTimer(name, at):
                self._told.timers.add((name, at))
                if started is not None:
                    await run_index.set_timer(self._bus, started, name, at)
            case Close():
                self._told.closed = True
                await self._call_off(run)
                if started is not None:
                    await run_index.close(self._bus, run, started)
                elif self._told.context:
                    await run_index.forget_context(self._bus, *self._where)
