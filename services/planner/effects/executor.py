"""Executes the commands of `advance`: calls models, sends tool calls, sets timers, writes the index.

Every effect is idempotent, since another handling may repeat it.
"""

import asyncio
import math
import time
from dataclasses import replace
from typing import Any

import structlog

from contracts import subjects
from contracts.events import Asked, PlannedCall
from contracts.inbox import RunResumed
from contracts.tools import CallQuestion, CallRequested
from services.messaging.connection import Bus
from services.messaging.tenant_turns import Turn
from services.planner.effects import run_index, timers
from services.planner.effects.call_places import CallPlaces
from services.planner.effects.chunk_publisher import ChunkPublisher
from services.planner.effects.model_call import ask, say
from services.planner.effects.model_requests import ModelRequests
from services.planner.effects.ownership_watch import Address, watched
from services.planner.run import terminal
from services.planner.run.commands import (
    Ask,
    AskCritique,
    AskEffort,
    AwaitTools,
    Close,
    Dispatch,
    Handling,
    KeepContext,
    Open,
    ReadShown,
    Rules,
    Say,
    SetTimer,
    Wait,
    Wake,
)
from services.planner.run.decide import comes_to, text_of
from services.planner.run.decision import Decision
from services.planner.run.state import Run
from services.planner.run_log import RunLogs
from services.shared.builtin_tools import READ_ARTIFACT, READ_ARTIFACT_DIGEST

logger = structlog.get_logger(__name__)
CRITIQUE_MARGIN_S = 0.5
PLACE_WAIT_S = 10.0
"""After this wait for a free place, a call is checked again: its run may have ended."""


def now() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


class Effects:
    """The effects of one handling of a message.

    `carry_out` returns whether the log must be read again before the next command. Not so after a model's reply: it is
    appended next, and the fence shows whether the run has moved on.
    """

    def __init__(
        self,
        bus: Bus,
        logs: RunLogs,
        model_requests: ModelRequests,
        rules: Rules,
        chunk_ttl_s: int,
        where: Address,
        handling: Handling,
        turn: Turn,
        places: CallPlaces,
    ) -> None:
        self._bus = bus
        self._logs = logs
        self._model_requests = model_requests
        self._rules = rules
        self._chunk_ttl_s = chunk_ttl_s
        self._where = where
        self._handling = handling
        self._turn = turn
        self._places = places
        self._background: list[asyncio.Task[None]] = []

    async def carry_out(self, run: Run, command: Any) -> bool:
        """Execute a command."""
        if isinstance(command, Ask | Say | AskEffort | AskCritique):
            return not await self._ask(run, command)
        match command:
            case Dispatch(calls, again):
                sent = await asyncio.gather(
                    *(self._dispatch_in_turn(run, call, again=call.call_id in again) for call in calls)
                )
                return not all(sent)
            case Wait(until):
                self._turn.end()
                await asyncio.sleep(max(0.0, (until - now()) / 1000))
                self._handling.now = now()
                return True
            case Wake():
                await self._wake()
            case ReadShown():
                self._handling.shown = await self._logs.shown(self._where, run)
            case _:
                await self._keep(run, command)
        return False

    async def finish(self) -> None:
        """Wait for background effects. Only then may the message be acknowledged."""
        await asyncio.gather(*self._background)

    async def _ask(self, run: Run, command: Ask | Say | AskEffort | AskCritique) -> bool:
        """Call a model. Returns False when another handling superseded the call."""
        self._turn.end_soon()
        has_result = await self._result(run, command, command.asked)
        self._handling.now = now()
        return has_result

    async def _result(self, run: Run, command: Ask | Say | AskEffort | AskCritique, asked: Asked) -> bool:
        handling = self._handling
        match command:
            case Ask():
                handling.decision = await self._decision(run, asked)
                return handling.decision is not None
            case Say(_, answer):
                if not await say(self._publisher(run, asked), text_of(run, answer)):
                    return False
                handling.decision, handling.answer_to_restate = replace(answer, restate=False), None
                return True
            case AskEffort():
                handling.triaged = await watched(
                    self._bus, self._where, self._logs.tail(self._where, asked.holder), self._model_requests.triage(run)
                )
                return handling.triaged is not None
            case AskCritique(_, args):
                # It ends before the deadline, which would discard the answer.
                left_s = math.inf if run.deadline_at is None else (run.deadline_at - now()) / 1000 - CRITIQUE_MARGIN_S
                critique = self._model_requests.critique(run, terminal.answered(run, args).raw_answer, left_s)
                handling.critique = await watched(
                    self._bus, self._where, self._logs.tail(self._where, asked.holder), critique
                )
                return handling.critique is not None

    async def _decision(self, run: Run, asked: Asked) -> Decision | None:
        publisher = self._publisher(run, asked)
        warnings: list[str] = []
        stream, reading = await self._model_requests.think(run, now(), warnings.extend)
        expiring = asyncio.create_task(self._expire(run, publisher))

        def answer_of(decision: Decision) -> tuple[Decision, str]:
            # The reply came in time. The deadline may pass while its rest is stored; that does not change it.
            expiring.cancel()
            decision = comes_to(run, decision, now(), self._rules)
            fresh = [warning for warning in warnings if warning not in run.warnings]
            if fresh:
                decision = replace(decision, warnings=(*decision.warnings, *fresh))
            return decision, text_of(run, decision)

        try:
            decision = await ask(self._bus, self._where, publisher, stream, reading, answer_of)
        finally:
            expiring.cancel()
        if decision is None:
            logger.info("model_call_abandoned", turn=asked.turn, attempt=asked.attempt)
        return decision

    async def _expire(self, run: Run, publisher: ChunkPublisher) -> None:
        """Abandon the call when the run's deadline passes. Its timer message may wait behind other model calls."""
        while run.deadline_at is not None:
            left_ms = run.deadline_at - now()
            if left_ms <= 0:
                await self._turn.take()  # Runs that one tenant requested together reach their deadlines together.
                publisher.abandon()
                return
            await asyncio.sleep(left_ms / 1000)
            run = await self._logs.load(self._where, fresh=True)  # It may have been topped up.

    def _publisher(self, run: Run, asked: Asked) -> ChunkPublisher:
        return ChunkPublisher(
            self._bus, self._where, asked, run.seq, self._logs.tail(self._where, asked.holder), self._chunk_ttl_s
        )

    async def _context(self, run: Run) -> dict[str, Any]:
        """Return the caller's `tool_context`. Older logs hold it in the request."""
        if run.started is None or not run.started.has_tool_context:
            return run.started.request.tool_context if run.started else {}
        return await self._logs.context(self._where)

    async def _dispatch_in_turn(self, run: Run, planned: PlannedCall, *, again: bool) -> bool:
        """Send a call once it has a place. Returns whether it had one at once; if not, the run may have moved on."""
        where, concurrency = self._where, await self._model_requests.concurrency(run, planned.tool)
        at_once = self._places.take(where.tenant, planned.tool, concurrency)
        if not at_once:
            self._turn.end()
            if not await self._places.wait(where.tenant, planned.tool, PLACE_WAIT_S):
                return False
            async with self._logs.lock(where) as lock, lock:
                run = await self._logs.load(where, fresh=True)
            if run.terminal is not None:
                self._places.give_back(where.tenant, planned.tool)
                return False
        await self._dispatch(run, planned, await self._context(run), again=again or not at_once)
        self._handling.dispatched.add(planned.call_id)
        return at_once

    async def _dispatch(self, run: Run, planned: PlannedCall, context: dict[str, Any], *, again: bool) -> None:
        call, started, step = run.open.get(planned.call_id), run.started, run.step
        if call is None or started is None or step is None:
            return  # It has an outcome meanwhile.
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
        """Cancel the open calls of an ended run at their tools. tool_runner does so too, unless it is stopped now."""
        for call in run.open.values():
            if call.call_id in run.owner:
                question = CallQuestion(idempotency_key=f"{self._where.run}.{call.call_id}")
                await self._bus.tell(subjects.tool_cancel(call.tool), question.model_dump_json().encode())

    async def _wake(self) -> None:
        handling, where = self._handling, self._where
        subject = subjects.inbox(where.tenant, where.run, f"resumed-{handling.owner.partition(':')[2]}")
        await self._bus.publish_surely(
            subject, RunResumed().model_dump_json().encode(), f"{where.run}-resumed-{handling.owner}"
        )
        handling.woken = True

    async def _await_tools(self) -> None:
        handling = self._handling
        if handling.request is not None:
            self._turn.end_soon()
            await self._model_requests.await_tools(handling.request)
            handling.started, handling.refusal = self._model_requests.open(handling.request)
            handling.now = now()
        handling.waited = True

    async def _keep(self, run: Run, command: Any) -> None:
        """Execute the commands that store what follows from the log: timers, index entry, `tool_context`."""
        started = run.started
        match command:
            case AwaitTools():
                await self._await_tools()
            case KeepContext():
                await self._logs.keep_context(self._where, self._handling.context)
                self._handling.kept = True
            case Open():
                self._handling.opened = True
                if started is not None:
                    self._background.append(asyncio.create_task(run_index.enter(self._bus, run, started)))
            case SetTimer(name, at):
                self._handling.timers.add((name, at))
                if started is not None:
                    await timers.set_timer(self._bus, started, name, at)
            case Close():
                self._handling.closed = True
                await self._call_off(run)
                if started is not None:
                    await run_index.close(self._bus, run, started)
                elif self._handling.context:
                    await run_index.forget_context(self._bus, *self._where)
