"""Sends the calls of a run: directly, or through the stream CALLS."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from contracts.runs.events import CallStarted, PlannedCall
from contracts.runs.inbox import CallFinished
from contracts.sessions.tasks import TASK_TOOLS
from contracts.tools.messages import CallQuestion, CallRequested
from contracts.wire import names, subjects
from contracts.wire.base import MAX_REQUEST_BYTES
from contracts.wire.faults import Fault
from contracts.wire.names import unix_ms
from contracts.wire.records import EVENTS_HEADER, Record
from services.messaging.fairness import TimeSlice
from services.planner.effects.call_paths import START_WITHIN_S
from services.planner.effects.parts import Parts
from services.planner.logs.ownership_watch import Address
from services.planner.logs.session_log import SessionAddress
from services.planner.run.calls import tasks
from services.planner.run.calls.starting import approval_of
from services.planner.run.commands import Dispatch, Progress
from services.planner.run.state.run import Run, round_id
from services.shared.tools.approvals import rules_for
from services.shared.tools.builtin import GET_PAYLOAD, OF_PLANNER, READ_ARTIFACT, READ_ARTIFACT_DIGEST

FRESH_FOR_S = 1.0
"""After a direct request that took longer, another handling may have sent the call or ended the run."""
_STORE_WITHIN_S = 60.0
"""CALLS knows the ids of its messages for two minutes. A call that is stored later than this may be in it twice."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """What became of a call."""

    is_sent: bool = True
    outcome: CallFinished | None = None
    is_current: bool = True
    """There was no wait in which the run may have moved on."""


_NOT_SENT = _Sent(is_sent=False, is_current=False)


class Dispatcher:
    """Sends the calls of one handling's run."""

    def __init__(self, parts: Parts, address: Address, time_slice: TimeSlice) -> None:
        self._parts = parts
        self._address = address
        self._time_slice = time_slice

    async def dispatch(self, run: Run, progress: Progress, command: Dispatch) -> tuple[Progress, bool]:
        """Send calls, and wait for those that are made directly.

        Return the new progress, and whether the log must be read again: the run may have moved on.
        """
        sends = [self._send(run, call, again=call.call_id in command.again) for call in command.calls]
        # A session gets the tasks of one reply in their order: the last one may seal the group of all.
        in_order = len(sends) == 1 or all(call.tool in TASK_TOOLS for call in command.calls)
        sent = [await each for each in sends] if in_order else await asyncio.gather(*sends)
        outcomes = [each.outcome for each in sent if each.outcome is not None]
        progress = progress.but(
            now=unix_ms(),
            dispatched=progress.dispatched
            | {round_id(call) for call, each in zip(command.calls, sent, strict=True) if each.is_sent},
            outcomes=(*progress.outcomes, *outcomes),
        )
        return progress, not all(each.is_current for each in sent)

    async def call_off(self, run: Run) -> None:
        """Cancel the open calls of an ended run at their tools. tool_runner does so too, unless it is stopped now."""
        for call in run.open.values():
            if call.call_id in run.owner and call.tool not in OF_PLANNER:
                question = CallQuestion(idempotency_key=f"{self._address.run}.{call.call_id}", round=call.round)
                await self._parts.bus.send(subjects.tool_cancel(call.tool), question)

    async def _send(self, run: Run, planned: PlannedCall, *, again: bool) -> _Sent:
        if planned.tool in TASK_TOOLS:
            return await self._call_session(run, planned)
        if planned.tool == GET_PAYLOAD:
            return _Sent(outcome=await self._payload(run, planned))
        concurrency = await self._parts.model_requests.concurrency(run, planned.tool)
        has_place = self._parts.call_places.take_now(self._address.tenant, planned.tool, concurrency)
        if not has_place:
            self._time_slice.end()
            if not await self._parts.call_places.wait(self._address.tenant, planned.tool):
                return _NOT_SENT
        if (not has_place and await self._has_ended()) or planned.call_id not in run.open:
            self._parts.call_places.give_back(self._address.tenant, planned.tool)
            return _NOT_SENT
        age_s = (unix_ms() - run.announced_at[planned.call_id]) / 1000
        if planned.direct is not None and again:
            # An earlier handling may have made this direct call. It is sent through CALLS.
            if await self._parts.direct_calls.was_received(planned.direct, self._round_key(planned), age_s):
                await self._record_start(planned)
            await self._store(run, planned, again=True)
        elif planned.direct is not None and has_place and 0 <= age_s <= START_WITHIN_S:
            return await self._call(run, planned, planned.direct)
        else:
            await self._store(run, planned, again=again or not has_place)
        return _Sent(is_current=has_place)

    async def _call_session(self, run: Run, planned: PlannedCall) -> _Sent:
        """Let the session handle a call about background tasks here and now."""
        call = run.open.get(planned.call_id)
        message = tasks.message_of(run, call, await self._context(run)) if call is not None else None
        if message is None:
            return _NOT_SENT
        body = message.model_dump_json().encode()
        if len(body) > MAX_REQUEST_BYTES:
            reason = f"The task's request has {len(body):,} bytes, and at most {MAX_REQUEST_BYTES:,} can be sent"
            fault = Fault(code="invalid_args", reason=reason)
            outcome = CallFinished(call_id=planned.call_id, tool=planned.tool, status="failed", failure=fault)
            return _Sent(outcome=outcome)
        address = SessionAddress.of(self._address.tenant, message.session_id)
        answered = await self._parts.sessions.on_message(address, message, run.owner[planned.call_id])
        return _Sent(outcome=answered)

    async def _payload(self, run: Run, planned: PlannedCall) -> CallFinished:
        """Return the outcome of reading a payload of the conversation: the log of its run holds it."""
        found = await self._parts.logs.payload(self._address.tenant, run, str(planned.args.get("payload_id")))
        ids = {"call_id": planned.call_id, "tool": planned.tool}
        if found is None:
            fault = Fault(code="invalid_args", reason="this conversation has no payload with this id")
            return CallFinished(**ids, status="failed", failure=fault)
        shown = found.model_dump(mode="json", include={"payload_id", "kind", "summary", "table_id", "data", "stored"})
        shown["data"] = shown.pop("stored", None) or shown["data"]
        return CallFinished(**ids, status="succeeded", observation=shown)

    async def _call(self, run: Run, planned: PlannedCall, instance: str) -> _Sent:
        """Make a direct call. If it is declined or unfinished, send it through CALLS."""
        began = time.monotonic()
        message = await self._message(run, planned, start_within_s=START_WITHIN_S)
        if message is None:
            return _Sent()
        self._time_slice.end()
        outcome = await self._parts.direct_calls.call(instance, message)
        if isinstance(outcome, CallFinished):
            self._parts.call_places.give_back(self._address.tenant, planned.tool)
            return _Sent(outcome=outcome)
        is_fresh = time.monotonic() - began < FRESH_FOR_S
        if (outcome == "unfinished" or not is_fresh) and await self._has_ended():
            self._parts.call_places.give_back(self._address.tenant, planned.tool)
            return _NOT_SENT
        if outcome == "unfinished":
            await self._record_start(planned)
        await self._store(run, planned, again=outcome == "unfinished" or not is_fresh)
        return _Sent(is_current=is_fresh)

    async def _record_start(self, planned: PlannedCall) -> None:
        """Record that a call may have begun, as tool_runner does before it calls a tool that is not idempotent."""
        record = Record(events=[CallStarted(call_id=planned.call_id, tool=planned.tool, round=planned.round)])
        await self._parts.bus.publish_surely(
            subjects.stream(*self._address),
            record,
            f"{self._round_key(planned)}.started",
            {EVENTS_HEADER: record.types()},
        )

    async def _store(self, run: Run, planned: PlannedCall, *, again: bool) -> None:
        message = await self._message(run, planned, again=again, start_within_s=_STORE_WITHIN_S)
        if message is not None:
            subject = subjects.call(self._address.tenant, self._address.run, planned.tool)
            await self._parts.bus.publish_surely(subject, message, self._round_key(planned))

    async def _has_ended(self) -> bool:
        async with self._parts.logs.lock(self._address):
            return (await self._parts.logs.load(self._address, fresh=True)).terminal is not None

    async def _message(
        self, run: Run, planned: PlannedCall, *, start_within_s: float, again: bool = False
    ) -> CallRequested | None:
        """Return the message of a call; None if the call has an outcome by now, or waits for a person."""
        call, started, step = run.open.get(planned.call_id), run.started, run.step
        if call is None or started is None or step is None or call.call_id not in run.owner:
            return None
        request = started.request
        return CallRequested(
            call_id=call.call_id,
            run_id=self._address.run,
            tenant=self._address.tenant,
            tool=call.tool,
            args=call.args,
            spec=started.tools.get(call.tool, READ_ARTIFACT_DIGEST),
            step=step.step,
            resolved=call.resolved,
            deadline_at=run.deadline_at,
            again=again,
            start_by=run.announced_at[call.call_id] + int(start_within_s * 1000),
            readable=call.tool == READ_ARTIFACT and call.args.get("artifact_id") in run.collected.readable,
            round=call.round,
            answers=run.pause_decisions.answers.get(call.call_id, []),
            state=run.pause_decisions.states.get(call.call_id, {}),
            approval=approval_of(run, call),
            approval_rules=rules_for(started.approval_rules, call.tool),
            session_id=request.session_id,
            trace_id=request.trace_id,
            request_id=request.request_id or request.run_id,
            user_id=request.user_id,
            context=await self._context(run),
        )

    async def _context(self, run: Run) -> dict[str, Any]:
        """Read the caller's `tool_context`."""
        has_context = run.started is not None and run.started.has_tool_context
        return await self._parts.logs.context(self._address) if has_context else {}

    def _round_key(self, call: PlannedCall) -> str:
        return names.round_key(self._address.run, call.call_id, call.round)
