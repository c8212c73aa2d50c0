"""Call tools: drive the machine of each call over the transport that serves its tool.

Rule 1: nothing is decided here. Commands of the machine become requests, its alarm becomes a timer.
Rule 2: replies after the end of a call are ignored.
Rule 3: parts of a result beyond a few megabytes are held in a temporary file, so memory does not grow with results in
transit.
"""

import asyncio
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import structlog

from contracts.artifacts import BytesGiven, BytesWanted
from contracts.tools.messages import CallQuestion, CallRequested, ResultRejected, ToolCall, ToolSpec
from contracts.wire.base import parsed
from contracts.wire.faults import Fault
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus
from services.tool_runner.calls import commands, events, history
from services.tool_runner.calls.events import Event
from services.tool_runner.calls.history import RunWatch
from services.tool_runner.calls.machine import CallMachine
from services.tool_runner.calls.progress import CallProgress
from services.tool_runner.calls.state import CallRules
from services.tool_runner.errors import AlreadyCompleted, CallFailed, Declined, InvalidArguments, RunEnded
from services.tool_runner.settings import ToolRunnerSettings

from .base import Connection, EventQueue, Transport

logger = structlog.get_logger(__name__)

_MAX_CALL_S = 3600.0
"""Longest call, whatever the run's deadline is."""
_MAX_OTHER_REPLIES_BYTES = 8 << 20
"""Bytes of other replies that may wait beside a result."""
_MAX_MEMORY_BYTES = 4 << 20


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


class ResultBody:
    """A result as unparsed JSON. `size`: its bytes. The caller closes it.

    `content`: the tool's text for the model. With one, a result without bytes is text alone.
    """

    def __init__(self, data: bytes = b"", content: events.Content | None = None) -> None:
        self.size = len(data)
        self.content = content
        self._data = data
        self._file: tempfile.SpooledTemporaryFile[bytes] | None = None

    def add(self, part: bytes) -> None:
        """Append a part."""
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115, see close
        self._file.write(part)
        self.size += len(part)

    def read(self) -> bytes:
        """Return all bytes."""
        if self._file is None:
            return self._data
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        """Release the bytes."""
        self._data = b""
        if self._file is not None:
            self._file.close()


class Dropped:
    """Takes what a tool sends during a call that nobody follows, and drops it."""

    async def on_progress(self, data: bytes) -> None:
        """Drop it."""

    async def on_piece(self, data: bytes) -> None:
        """Drop it."""

    async def bytes_of(self, wanted: BytesWanted) -> bytes:
        """There is no run whose artifacts these could be."""
        raise InvalidArguments(f"no run has the artifact {wanted.artifact_id}")


Progress = CallProgress | Dropped
"""Takes what a tool sends during a call."""


class ToolCaller:
    """Calls tools. Remembers the heartbeat interval of each tool. Of the transports, the last one serves every tool."""

    def __init__(self, bus: Bus, settings: ToolRunnerSettings, transports: Sequence[Transport]) -> None:
        self.bus = bus
        self.settings = settings
        self.heartbeats: dict[str, float] = {}
        """Tool -> seconds."""
        self._transports = transports

    def _transport_of(self, spec: ToolSpec) -> Transport:
        return next(each for each in self._transports if each.serves(spec))

    async def call(self, prepared: PreparedCall, progress: Progress, watch: RunWatch) -> ResultBody | commands.Pause:
        """Call the tool and return its result, which the caller closes, or the pause that ends the round.

        Raises CallFailed, RunEnded when the run ends meanwhile, AlreadyCompleted and Declined.
        """
        queue = EventQueue(self.settings.max_result_bytes + _MAX_OTHER_REPLIES_BYTES)
        transport = self._transport_of(prepared.spec)
        with transport.connect(prepared.spec, queue) as connection, watch.on_end(lambda: queue.put(events.RunEnded())):
            queue.put(events.Started(prepared.may_have_begun, prepared.checked_at, prepared.may_be_unread))
            driver = _CallDriver(self, transport, connection, queue, prepared, progress)
            try:
                return await driver.result()
            finally:
                driver.close()

    async def reject(self, call: CallRequested, spec: ToolSpec, fault: Fault) -> None:
        """Report to the tool's instances why a result or pause is not accepted. The one that sent it logs it."""
        rejected = ResultRejected(
            idempotency_key=_idempotency_key(call), round=call.round, code=fault.code, reason=fault.reason
        )
        await self._transport_of(spec).reject(call.tool, rejected)


class _CallDriver:
    """Carries out the commands of one call's machine."""

    def __init__(
        self,
        caller: ToolCaller,
        transport: Transport,
        connection: Connection,
        queue: EventQueue,
        prepared: PreparedCall,
        progress: Progress,
    ) -> None:
        call, spec, settings = prepared.call, prepared.spec, caller.settings
        self._caller, self._transport, self._connection, self._queue = caller, transport, connection, queue
        self._prepared, self._call, self._progress = prepared, call, progress
        self._question = CallQuestion(idempotency_key=_idempotency_key(call), round=call.round)
        self._deadline_at = unix_ms() + int(_MAX_CALL_S * 1000)
        if call.deadline_at is not None:
            self._deadline_at = min(self._deadline_at, call.deadline_at)
        now, connected_since = time.monotonic(), transport.connected_since
        rules = CallRules(
            tool=call.tool,
            idempotent=spec.idempotent,
            timeout_s=spec.timeout_s,
            deadline=now + (self._deadline_at - unix_ms()) / 1000,
            settling_s=settings.settling_s,
            unavailable_s=settings.unavailable_s,
            max_result_bytes=settings.max_result_bytes,
            may_decline=prepared.may_decline,
        )
        self._machine = CallMachine(
            rules,
            connected_since=now if connected_since is None else connected_since,
            heartbeat_s=caller.heartbeats.get(call.tool, spec.heartbeat_s),
        )
        self._parts: dict[int, ResultBody] = {}
        self._is_repeated = False
        self._giving: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Close results that were not used, and give no more bytes."""
        if self._giving is not None:
            self._giving.cancel()
        for body in self._parts.values():
            body.close()

    async def result(self) -> ResultBody | commands.Pause:
        """Return the tool's result or pause. Raises CallFailed, RunEnded, AlreadyCompleted or Declined."""
        answer: Event | None = None
        while True:
            event = answer or await self._queue.next(max(0.0, self._machine.alarm_at - time.monotonic()))
            answer = None
            event = event or events.Tick(self._transport.connected_since)
            for command in self._machine.receive(event, time.monotonic()):
                if isinstance(command, commands.Ending):
                    return self._end(command)
                answer = await self._carry_out(command)

    async def _carry_out(self, command: commands.Action) -> Event | None:
        """Do what the machine commands. Return the event that this has led to, if any."""
        match command:
            case commands.Send(request, start_by, repeats):
                if repeats is not None:
                    logger.info("call_repeated", attempts=repeats)
                    self._is_repeated = True
                is_sent = await self._connection.send(request, self._tool_call(start_by))
                return None if is_sent else events.NotSent(request)
            case commands.QueryStatus(request):
                await self._connection.ask_status(request, self._question)
            case commands.PingInstance(request, instance):
                await self._connection.ping(request, instance)
            case commands.Cancel():
                await self._connection.cancel(self._question)
            case commands.CheckStatus():
                return await self._check()
            case commands.PassOn(sent):
                await self._pass_on(sent)
            case commands.KeepPart(request, data):
                self._parts.setdefault(request, ResultBody()).add(data)
            case commands.RememberHeartbeat(every_s):
                self._caller.heartbeats[self._call.tool] = every_s
            case _:
                assert_never(command)
        return None

    async def _pass_on(self, sent: events.Progress | events.Piece | events.BytesWanted) -> None:
        match sent:
            case events.Progress(data):
                await self._progress.on_progress(data)
            case events.Piece(data):
                await self._progress.on_piece(data)
            case events.BytesWanted(data):
                if self._giving is None or self._giving.done():  # A tool asks for one range at a time.
                    self._giving = asyncio.create_task(self._give(data))

    async def _give(self, data: bytes) -> None:
        if (wanted := parsed(BytesWanted, data)) is None:
            return
        failure, found = None, b""
        try:
            found = await self._progress.bytes_of(wanted)
        except CallFailed as error:
            failure = error.fault()
        place = {"artifact_id": wanted.artifact_id, "offset": wanted.offset, "failure": failure}
        await self._connection.give(BytesGiven(**self._question.model_dump(), **place), found)

    def _end(self, ending: commands.Ending) -> ResultBody | commands.Pause:
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
                raise RunEnded if run_ended else AlreadyCompleted
            case commands.Decline():
                raise Declined
            case _:
                assert_never(ending)

    async def _check(self) -> Event:
        checked_at = time.monotonic()
        try:
            if self._prepared.has_run:
                await history.check_open(self._caller.bus, self._call)
        except RunEnded:
            return events.RunEnded()
        except AlreadyCompleted:
            return events.AlreadyCompleted()
        return events.StatusConfirmed(checked_at)

    def _tool_call(self, start_by: float) -> ToolCall:
        call = self._call
        sent_at = unix_ms()
        start_by_ms = sent_at + math.floor((start_by - time.monotonic()) * 1000)
        if self._prepared.may_decline and not self._is_repeated and call.start_by is not None:
            start_by_ms = min(start_by_ms, call.start_by)  # Later its planner sends it through CALLS.
        return ToolCall(
            call_id=call.call_id,
            run_id=call.run_id,
            tenant=call.tenant,
            tool=call.tool,
            args=self._prepared.args,
            idempotency_key=_idempotency_key(call),
            deadline_at=self._deadline_at,
            start_by=start_by_ms,
            sent_at=sent_at,
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


def _idempotency_key(call: CallRequested) -> str:
    return f"{call.run_id}.{call.call_id}"
