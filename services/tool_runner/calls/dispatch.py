"""Call a tool, and return its result or raise the one reason why there is none.

Rule 1: a request that may have reached the tool is repeated only if the tool is idempotent. Before the repetition all
instances are asked who holds the call; an instance that holds it continues.
Rule 2: silence and "no responders" count only while NATS is connected, and not shortly after a reconnect: tools
reconnect too, and replies sent meanwhile are lost. So after a reconnect the instances are first asked who holds the
call.
Rule 3: the status of the run is checked again before each request when the last check is older than a second, because
this process may have been suspended.
Rule 4: a tool that announces its heartbeat interval is missed after three of them; of any other tool `timeout_s` is the
longest silence. A tool that has not replied yet is asked early whether it holds the call: where instances answer that
question and none holds it, the call is lost.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NoReturn

import structlog
from pydantic import ValidationError

from contracts import subjects
from contracts.tools import CallQuestion, CallRequested, Heartbeat, ToolCall, ToolSpec
from services.messaging.connection import Bus
from services.tool_runner.errors import (
    CallFailed,
    DeadlinePassed,
    InvalidResult,
    OutcomeUnknown,
    ResultTooLarge,
    RunEnded,
    ToolReported,
    ToolTimedOut,
    ToolUnavailable,
)
from services.tool_runner.progress import CallProgress
from services.tool_runner.run_watch import RunWatches
from services.tool_runner.settings import ToolRunnerSettings
from services.tool_runner.transports.nats import CallChannel, CallEvent, NatsTransport
from services.tool_runner.transports.result_parts import ResultBody, ResultParts, failure_of

logger = structlog.get_logger(__name__)

_HOLDER_ANSWER_S = 0.3
"""How long instances have to answer that they hold a call."""
_LATE_HOLDER_ANSWER_S = 1.0
"""The same for an instance that sent a heartbeat a moment ago: it may lack CPU rather than be dead."""
_FRESH_CHECK_S = 1.0
_PAUSE_S, _MAX_PAUSE_S = 0.1, 0.5
_OTHER_REPLIES_BYTES = 8 << 20
"""Bytes of other replies that may wait in the channel beside a result."""
_MISSED_HEARTBEATS = 3
_HEARTBEAT_SLACK_S = 1.0
_FIRST_CHECK_S = 2.5
_MIN_START_S = 10.0
"""Seconds that a tool has at least to start a call, since clocks of machines differ."""


class StatusCheck:
    """The last check of a call and its time.

    `check` raises RunEnded or AlreadySettled when the tool must not be called.
    """

    def __init__(self, check: Callable[[], Awaitable[None]], checked_at: float) -> None:
        self._check = check
        self._checked_at = checked_at

    def expire(self) -> None:
        """Make the next `refresh` check again."""
        self._checked_at = -math.inf

    async def refresh(self) -> None:
        """Check again if the last check is older than a second."""
        while (now := time.monotonic()) - self._checked_at > _FRESH_CHECK_S:
            await self._check()
            self._checked_at = now


class Dispatcher:
    """Calls of all tools by this process. Remembers the heartbeat interval of each tool."""

    def __init__(self, bus: Bus, settings: ToolRunnerSettings) -> None:
        self.bus = bus
        self.settings = settings
        self.transport = NatsTransport(bus, settings.max_result_bytes + _OTHER_REPLIES_BYTES)
        self.run_watches = RunWatches(bus)
        self.heartbeats: dict[str, float] = {}

    async def start(self) -> "Dispatcher":
        """Listen for replies."""
        await self.transport.start()
        return self

    async def call_tool(
        self,
        call: CallRequested,
        spec: ToolSpec,
        args: dict[str, Any],
        progress: CallProgress,
        check: StatusCheck,
        *,
        find_first: bool,
    ) -> ResultBody:
        """Return the tool's result as unparsed JSON; the caller closes it.

        `find_first`: the tool may have been called before. Raises CallFailed, RunEnded when the run ended meanwhile,
        and what `check` raises.
        """
        channel = self.transport.open()
        watch = self.run_watches.watch(call.tenant, call.run_id, lambda: channel.put(CallEvent("run_ended")))
        dispatch = Dispatch(self, channel, call, spec, args, progress, check)
        try:
            return await dispatch.outcome(find_first=find_first)
        finally:
            watch.stop()
            channel.close()
            dispatch.close()


class Dispatch:
    """One call in progress."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        channel: CallChannel,
        call: CallRequested,
        spec: ToolSpec,
        args: dict[str, Any],
        progress: CallProgress,
        check: StatusCheck,
    ) -> None:
        self._dispatcher = dispatcher
        self._bus, self._settings = dispatcher.bus, dispatcher.settings
        self._channel = channel
        self._call, self._spec, self._args, self._progress, self._check = call, spec, args, progress, check
        self._key = f"{call.run_id}.{call.call_id}"
        self._question = CallQuestion(idempotency_key=self._key).model_dump_json().encode()
        ends_at = time.time() + self._settings.max_call_s
        self._deadline = min(ends_at, call.deadline_at / 1000) if call.deadline_at is not None else ends_at
        self._last_event_at = time.monotonic()
        promised = spec.heartbeat_s if spec.heartbeat_s is not None and spec.heartbeat_s <= spec.timeout_s else None
        self._heartbeat_s = dispatcher.heartbeats.get(call.tool, promised)
        self._has_heartbeat = self._probed = False
        self._attempts = 0
        self._may_be_unread = False
        """A suspended instance may have an unread request of this call."""
        self._no_responders_since: float | None = None
        self._sent_keys: set[str] = set()
        self._parts = ResultParts(call.tool, self._settings.max_result_bytes)
        self._requested_parts = False

    def close(self) -> None:
        """Close the parts of results that were not used."""
        self._parts.close()

    async def outcome(self, *, find_first: bool) -> ResultBody:
        """Send the call and process events until there is a result. Raises CallFailed or RunEnded."""
        self._may_be_unread = find_first
        if not find_first:
            await self._send_call()
        elif await self._find_instance(_HOLDER_ANSWER_S) != "held":
            await self._retry()
        while True:
            event = await self._receive()
            if event is None:
                await self._on_silence()
                continue
            self._last_event_at = time.monotonic()
            result = await self._on_event(event)
            if result is not None:
                await self._cancel_leftovers()
                return result

    async def _send_call(self) -> None:
        """Send the call to the queue group of the tool. Returns once it was sent."""
        self._attempts += 1
        while True:
            await self._check.refresh()
            now = time.time()
            if now >= self._deadline:
                await self._fail(DeadlinePassed("the time for this call was over before the tool could be asked"))
            start_by = min(self._deadline, now + max(self._limit_s, _MIN_START_S))
            call = self._call
            request = ToolCall(
                call_id=call.call_id,
                run_id=call.run_id,
                tenant=call.tenant,
                tool=call.tool,
                args=self._args,
                idempotency_key=self._key,
                deadline_at=math.floor(self._deadline * 1000),
                start_by=math.floor(start_by * 1000),
                session_id=call.session_id,
                request_id=call.call_id,
                trace_id=call.trace_id,
                user_id=call.user_id,
                context=call.context,
            )
            self._last_event_at = time.monotonic()
            key = await self._channel.send(subjects.tool(call.tool), request.model_dump_json().encode())
            if key is not None:
                self._sent_keys.add(key)
                return
            await asyncio.sleep(_PAUSE_S)

    async def _retry(self) -> None:
        """Call again if that is safe. The tool was called, and no instance holds the call any more."""
        if not self._spec.idempotent:
            await self._fail(OutcomeUnknown(self._call.tool))
        if self._attempts >= self._settings.max_attempts:
            await self._fail(
                ToolUnavailable(f"{self._call.tool} stopped in the middle of this call {self._attempts} times")
            )
        logger.info("call_repeated", attempts=self._attempts)
        self._has_heartbeat, self._probed, self._may_be_unread = False, False, True
        self._check.expire()  # Another tool runner may have settled the call during the search.
        await self._send_call()

    @property
    def _limit_s(self) -> float:
        """Seconds of silence that are allowed now."""
        if self._heartbeat_s is None:
            return self._spec.timeout_s if self._probed else min(_FIRST_CHECK_S, self._spec.timeout_s)
        missed = _MISSED_HEARTBEATS * self._heartbeat_s + _HEARTBEAT_SLACK_S
        return missed if self._has_heartbeat else min(missed, self._spec.timeout_s)

    async def _receive(self) -> CallEvent | None:
        """Return the next event, None when the tool has been silent for too long. Raises DeadlinePassed."""
        while True:
            now, left_s = time.monotonic(), self._deadline - time.time()
            if left_s <= 0:
                await self._fail(DeadlinePassed("the time for this call was over before the tool answered"))
            trusted_at = self._bus.up_since + self._settings.settling_s
            silent_until = max(self._last_event_at + self._limit_s, trusted_at)
            event = await self._channel.receive(max(0.0, min(silent_until - now, left_s)))
            if event is not None:
                return event
            if not self._bus.is_connected:
                await asyncio.sleep(_PAUSE_S)
            elif time.monotonic() >= max(silent_until, self._bus.up_since + self._settings.settling_s):
                return None

    async def _on_silence(self) -> None:
        found = await self._find_instance(_LATE_HOLDER_ANSWER_S if self._has_heartbeat else _HOLDER_ANSWER_S)
        if found == "held":
            return
        if found == "lost" or self._heartbeat_s is not None:
            await self._retry()
            return
        # No instance subscribes to the question, so `timeout_s` is the longest silence.
        self._probed = True
        if time.monotonic() - self._last_event_at >= self._spec.timeout_s:
            unknown = "" if self._spec.idempotent else " Whether the call took effect is unknown."
            await self._fail(
                ToolTimedOut(f"{self._call.tool} did not answer within {self._spec.timeout_s:g} s.{unknown}")
            )

    async def _find_instance(self, wait_s: float) -> Literal["held", "lost", "no_responders"]:
        """Ask all instances whether one holds the call: "held", "lost" (none does), or "no_responders" (none subscribes).

        Silence counts only after instances had time to reconnect.
        """
        while True:
            await self._channel.send(subjects.tool_status(self._call.tool), self._question)
            event = await self._channel.receive(wait_s)
            while event is not None and event.kind == "reconnected":
                event = await self._channel.receive(wait_s)
            if event is not None and event.kind != "no_responders":
                self._last_event_at = time.monotonic()
                self._channel.unread(event)
                return "held"
            settled = self._bus.is_connected and time.monotonic() - self._bus.up_since > self._settings.settling_s
            if settled or time.time() >= self._deadline:
                return "lost" if event is None else "no_responders"
            await asyncio.sleep(_PAUSE_S)

    async def _on_event(self, event: CallEvent) -> ResultBody | None:
        match event.kind:
            case "result":
                return await self._on_result(event)
            case "part":
                self._parts.add(event)
            case "heartbeat":
                self._on_heartbeat(event.data)
            case "progress":
                await self._progress.on_progress(event.data)
            case "artifact_chunk":
                await self._progress.on_piece(event.data)
            case "failure" | "service_error":
                await self._cancel_leftovers()
                raise ToolReported(failure_of(event))
            case _:
                await self._on_connection_event(event)
        return None

    async def _on_connection_event(self, event: CallEvent) -> None:
        """Process an event that no tool sent."""
        match event.kind:
            case "no_responders":
                await self._on_no_responders(event)
            case "reconnected":
                # Replies of the meantime are lost; the instance that holds the call says it again.
                await self._channel.send(subjects.tool_status(self._call.tool), self._question)
            case "flood":
                await self._fail(ResultTooLarge(f"{self._call.tool} sent more than can be handled"))
            case "run_ended":
                await self._cancel()
                raise RunEnded

    async def _on_result(self, event: CallEvent) -> ResultBody | None:
        result = self._parts.joined(event)
        if result is None and not self._requested_parts:
            # Parts were lost: the instance that holds the result sends it again.
            self._requested_parts = True
            if await self._find_instance(_HOLDER_ANSWER_S) == "held":
                return None
        if result is None:
            raise InvalidResult(f"parts of the result of {self._call.tool} were lost on the way")
        return result

    def _on_heartbeat(self, data: bytes) -> None:
        try:
            heartbeat_s = Heartbeat.model_validate_json(data or b"{}").every_s
        except ValidationError:
            return
        if heartbeat_s is not None and heartbeat_s <= self._spec.timeout_s:
            self._has_heartbeat = True
            self._heartbeat_s = self._dispatcher.heartbeats[self._call.tool] = heartbeat_s

    async def _on_no_responders(self, event: CallEvent) -> None:
        """Nobody subscribes to the subject of a request. It matters only for requests of the call itself."""
        if event.key not in self._sent_keys:
            return
        now = time.monotonic()
        if self._no_responders_since is None:
            self._no_responders_since = now
        settled = now - self._bus.up_since > self._settings.settling_s
        if settled and now - self._no_responders_since >= self._settings.unavailable_s:
            await self._fail(ToolUnavailable(f"nobody serves {self._call.tool} right now"))
        await asyncio.sleep(min(_MAX_PAUSE_S, _PAUSE_S + (now - self._no_responders_since) / 2))
        self._attempts -= 1
        self._check.expire()  # Another tool runner may have settled the call meanwhile.
        await self._send_call()

    async def _fail(self, failure: CallFailed) -> NoReturn:
        await self._cancel()
        raise failure

    async def _cancel_leftovers(self) -> None:
        """Cancel requests that an instance may still read after the call has its outcome."""
        if self._may_be_unread:
            await self._cancel()

    async def _cancel(self) -> None:
        """Tell all instances that the call is cancelled."""
        await self._bus.tell(subjects.tool_cancel(self._call.tool), self._question)
