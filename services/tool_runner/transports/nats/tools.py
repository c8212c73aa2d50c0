"""Call tools over NATS: drive the machine of each call, and route the replies of all calls (`answers`).

Rule 1: nothing is decided here. Messages become events, commands become messages, the machine's alarm becomes a timer.
Rule 2: each request has its own reply subject, so parts of two replies to the same call never mix.
Rule 3: replies after the end of a call are ignored.
"""

import math
import time
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

import structlog

from contracts.tools.messages import CallQuestion, CallRequested, ResultRejected, ToolCall, ToolSpec
from contracts.wire import subjects
from contracts.wire.faults import Fault
from services.messaging.connection import Bus
from services.tool_runner.calls import commands, events, history
from services.tool_runner.calls.commands import Action, Ending
from services.tool_runner.calls.events import Event
from services.tool_runner.calls.machine import CallMachine
from services.tool_runner.calls.run_watch import RunWatch
from services.tool_runner.calls.state import CallRules
from services.tool_runner.errors import AlreadySettled, Declined, RunEnded
from services.tool_runner.results.body import ResultBody
from services.tool_runner.settings import ToolRunnerSettings
from services.tool_runner.transports.nats.answers import Answers
from services.tool_runner.transports.nats.replies import EventQueue

logger = structlog.get_logger(__name__)

_MAX_OTHER_REPLIES_BYTES = 8 << 20
"""Bytes of other replies that may wait beside a result."""


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that is ready to be sent. `args`: with values in place of references."""

    call: CallRequested
    spec: ToolSpec
    args: dict[str, Any]
    may_have_begun: bool
    """Another tool runner may have called the tool for it."""
    checked_at: float
    """When it was last checked that the call needs an outcome, by the monotonic clock."""
    may_be_unread: bool = False
    """Another tool runner may have sent it to an instance that has not read it yet."""
    may_decline: bool = False
    """If no instance can begin the call at once, raise Declined and do not wait."""
    has_run: bool = True
    """False: no run waits for it (a check of the tool), so none is asked whether it still does."""


class Progress(Protocol):
    """Takes what a tool sends during a call."""

    async def on_progress(self, data: bytes) -> None:
        """Take a report of progress."""

    async def on_piece(self, data: bytes) -> None:
        """Take a piece of an artifact."""


class NatsTools:
    """Calls tools over one connection. Remembers the heartbeat interval of each tool."""

    def __init__(self, bus: Bus, settings: ToolRunnerSettings) -> None:
        self.bus = bus
        self.settings = settings
        self.heartbeats: dict[str, float] = {}
        """Tool -> seconds."""
        self.answers = Answers(bus)

    async def start(self) -> "NatsTools":
        """Watch the connection."""
        self.bus.on_reconnect.append(self.answers.on_reconnect)
        return self

    async def call(self, prepared: PreparedCall, progress: Progress, watch: RunWatch) -> ResultBody | commands.Pause:
        """Call the tool and return its result, which the caller closes, or the pause that ends the round.

        Raises CallFailed, RunEnded when the run ends meanwhile, AlreadySettled and Declined.
        """
        queue = EventQueue(self.settings.max_result_bytes + _MAX_OTHER_REPLIES_BYTES)
        driver = CallDriver(self, queue, prepared, progress)
        try:
            with self.answers.to(queue), watch.on_end(lambda: queue.put(events.RunEnded())):
                queue.put(events.Started(prepared.may_have_begun, prepared.checked_at, prepared.may_be_unread))
                return await driver.result()
        finally:
            driver.close()

    async def reject(self, call: CallRequested, fault: Fault) -> None:
        """Report to the tool's instances why a result or pause is not accepted. The one that sent it logs it."""
        rejected = ResultRejected(
            idempotency_key=_idempotency_key(call), round=call.round, code=fault.code, reason=fault.reason
        )
        await self.bus.send(subjects.tool_rejected(call.tool), rejected.model_dump_json().encode())


class CallDriver:
    """Carries out the commands of one call's machine."""

    def __init__(self, tools: NatsTools, queue: EventQueue, prepared: PreparedCall, progress: Progress) -> None:
        call, spec, settings = prepared.call, prepared.spec, tools.settings
        self._tools, self._bus, self._queue = tools, tools.bus, queue
        self._prepared, self._call, self._progress = prepared, call, progress
        self._idempotency_key = _idempotency_key(call)
        self._question = (
            CallQuestion(idempotency_key=self._idempotency_key, round=call.round).model_dump_json().encode()
        )
        self._deadline_unix_s = time.time() + settings.max_call_s
        if call.deadline_at is not None:
            self._deadline_unix_s = min(self._deadline_unix_s, call.deadline_at / 1000)
        rules = CallRules(
            tool=call.tool,
            idempotent=spec.idempotent,
            timeout_s=spec.timeout_s,
            deadline=time.monotonic() + self._deadline_unix_s - time.time(),
            settling_s=settings.settling_s,
            unavailable_s=settings.unavailable_s,
            max_attempts=settings.max_attempts,
            max_result_bytes=settings.max_result_bytes,
            may_decline=prepared.may_decline,
        )
        self._machine = CallMachine(
            rules,
            connected_since=self._bus.up_since,
            heartbeat_s=tools.heartbeats.get(call.tool, spec.heartbeat_s),
        )
        self._parts: dict[int, ResultBody] = {}
        self._is_repeated = False

    def close(self) -> None:
        """Close results that were not used."""
        for body in self._parts.values():
            body.close()

    async def result(self) -> ResultBody | commands.Pause:
        """Return the tool's result or pause. Raises CallFailed, RunEnded, AlreadySettled or Declined."""
        answer: Event | None = None
        while True:
            event = answer or await self._queue.next(max(0.0, self._machine.alarm_at - time.monotonic()))
            answer = None
            for command in self._machine.receive(event or self._tick(), time.monotonic()):
                if isinstance(command, Ending):
                    return self._end(command)
                answer = await self._carry_out(command)

    def _tick(self) -> events.Tick:
        return events.Tick(self._bus.up_since if self._bus.is_connected else None)

    async def _carry_out(self, command: Action) -> Event | None:
        """Do what the machine commands. Return the event that this has led to, if any."""
        match command:
            case commands.Send() | commands.QueryStatus() | commands.PingInstance() | commands.Cancel():
                return await self._send(command)
            case commands.CheckStatus():
                return await self._check()
            case commands.PublishProgress(data):
                await self._progress.on_progress(data)
            case commands.PublishPiece(data):
                await self._progress.on_piece(data)
            case commands.KeepPart(request, data):
                self._parts.setdefault(request, ResultBody()).add(data)
            case commands.RememberHeartbeat(every_s):
                self._tools.heartbeats[self._call.tool] = every_s
            case _:
                assert_never(command)
        return None

    def _end(self, ending: Ending) -> ResultBody | commands.Pause:
        match ending:
            case commands.Succeed(data, content):
                return ResultBody(data, content)
            case commands.SucceedInParts(request, content):
                body = self._parts.pop(request, ResultBody())
                body.content = content
                return body
            case commands.Fail(failure):
                raise failure
            case commands.Pause():
                return ending
            case commands.Abandon(run_ended):
                raise RunEnded if run_ended else AlreadySettled
            case commands.Decline():
                raise Declined
            case _:
                assert_never(ending)

    async def _send(
        self, command: commands.Send | commands.QueryStatus | commands.PingInstance | commands.Cancel
    ) -> Event | None:
        tool, send = self._call.tool, self._tools.answers.send
        match command:
            case commands.Send(request, start_by, repeats):
                if repeats is not None:
                    logger.info("call_repeated", attempts=repeats)
                    self._is_repeated = True
                is_sent = await send(tool, subjects.tool(tool), self._encoded(start_by), self._queue, request)
                return None if is_sent else events.NotSent(request)
            case commands.QueryStatus(request):
                await send(tool, subjects.tool_status(tool), self._question, self._queue, request)
            case commands.PingInstance(request, instance):
                await send(tool, subjects.discover_ping(tool, instance), b"", self._queue, request, is_ping=True)
            case commands.Cancel():
                await self._bus.send(subjects.tool_cancel(tool), self._question)
            case _:
                assert_never(command)
        return None

    async def _check(self) -> Event:
        checked_at = time.monotonic()
        try:
            if self._prepared.has_run:
                await history.check_open(self._bus, self._call)
        except RunEnded:
            return events.RunEnded()
        except AlreadySettled:
            return events.AlreadySettled()
        return events.StatusConfirmed(checked_at)

    def _encoded(self, start_by: float) -> bytes:
        call = self._call
        start_by_ms = math.floor((time.time() + start_by - time.monotonic()) * 1000)
        if self._prepared.may_decline and not self._is_repeated and call.start_by is not None:
            start_by_ms = min(start_by_ms, call.start_by)  # Later its planner sends it through CALLS.
        request = ToolCall(
            call_id=call.call_id,
            run_id=call.run_id,
            tenant=call.tenant,
            tool=call.tool,
            args=self._prepared.args,
            idempotency_key=self._idempotency_key,
            deadline_at=math.floor(self._deadline_unix_s * 1000),
            start_by=start_by_ms,
            understands_declined=True,
            round=call.round,
            answers=call.answers,
            state=call.state,
            understands_pause=True,
            understands_content=True,
            session_id=call.session_id,
            request_id=call.request_id or call.run_id,
            trace_id=call.trace_id,
            user_id=call.user_id,
            context=call.context,
        )
        return request.model_dump_json().encode()


def _idempotency_key(call: CallRequested) -> str:
    return f"{call.run_id}.{call.call_id}"
