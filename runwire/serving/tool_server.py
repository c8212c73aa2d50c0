"""Serve one tool over NATS.

Rule 1: calls run at the same time. The caller bounds how many over all instances; an instance knows its own only, and
declines a request above `concurrency` of them.
Rule 2: heartbeats say that the process is alive, the function's own reports that it makes progress: without a report
for `timeout_s` the call fails.
Rule 3: a call that is no longer wanted is not started. A process that was stopped finds old requests in its socket when
it resumes; those that a later cancel names, or that came over a connection now lost, are dropped (`stall`). Whether a
call may still begin is asked last in the thread of its function: a process may be stopped anywhere before that.
Rule 4: the function runs once per idempotency key and round; a repeated request joins the call (`calls`).
Rule 5: no permissions are needed beyond `tool.<name>`, its `.status`, `.cancel`, `.rejected` and `.given`, `$SRV` and
replies: no requests are sent from here.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import MaxPayloadError
from pydantic import ValidationError

from contracts import artifacts
from contracts.tools import messages as wire
from contracts.wire import subjects
from contracts.wire.base import parsed
from contracts.wire.faults import describe
from runwire.errors import ToolError
from runwire.serving.announcement import NATS_ERRORS, Announcement
from runwire.serving.calls import Call, CallContext, Calls, Key, Reply, failure_replies, reply_of, result_replies
from runwire.serving.connection import CallerClock, StallDetector
from runwire.serving.executor import Executor, TooLate
from runwire.tools.context import pause_in
from runwire.tools.decorator import HEARTBEAT_INTERVAL_S, Tool

logger = logging.getLogger("runwire.serving")

_FIRST_HEARTBEAT_S = 0.03
"""A call that takes longer sends its first heartbeat then."""
_MAX_REQUEST_ERROR_CHARACTERS = 300
_name: Callable[[type], str] = type.__dict__["__name__"].__get__
"""Returns the name of a class, whatever its own class says instead."""
_CALLERS = (
    "<frozen importlib",
    str(Path(__file__).parents[1]),
    *(str(Path(module.__file__ or "").parent) for module in (asyncio, concurrent.futures)),
)
"""Where what calls the author's code is: Runwire and the event loop."""


class ToolServer:
    """Serves one tool of this process."""

    def __init__(
        self, client: Client, tool: Tool[..., Any], executor: Executor, stall: StallDetector, clock: CallerClock
    ) -> None:
        self._client = client
        self._tool = tool
        self._executor = executor
        self._stall = stall
        self._clock = clock
        self._cancelled_keys: set[Key] = set()
        """Calls that were cancelled before they started here, as read since the last stall."""
        self._calls = Calls()
        self._tasks: set[asyncio.Task[None]] = set()
        self._announcement = Announcement(client, tool)
        heartbeat = wire.Heartbeat(every_s=HEARTBEAT_INTERVAL_S, instance=self._announcement.instance)
        self._heartbeat = reply_of("heartbeat", heartbeat.model_dump_json().encode())
        self._requests: Subscription | None = None
        self._buffered_before_disconnect = 0
        """The number of buffered requests that came over a connection now lost."""
        self._control: list[Subscription] = []

    async def start(self) -> None:
        """Take calls, then announce the tool."""
        name = self._tool.name
        self._control = [
            await self._client.subscribe(subjects.tool_status(name), cb=self._on_status),
            await self._client.subscribe(subjects.tool_cancel(name), cb=self._on_cancel),
            await self._client.subscribe(subjects.tool_rejected(name), cb=self._on_rejected),
            await self._client.subscribe(subjects.tool_given(name), cb=self._on_given),
        ]
        self._requests = await self._client.subscribe(subjects.tool(name), queue=name, cb=self._on_request)
        await self._announcement.start()

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and give those that run `grace_s` seconds.

        Then they are abandoned without a reply, so that another instance may run them.
        """
        await self._announcement.stop()
        with contextlib.suppress(*NATS_ERRORS):
            if self._requests is not None:
                await self._requests.drain()  # type: ignore[no-untyped-call]  # nats-py does not annotate it
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        for subscription in self._control:
            with contextlib.suppress(*NATS_ERRORS):
                await subscription.unsubscribe()

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self._tool.name

    @property
    def offered(self) -> asyncio.Event:
        """Set once the platform offers the tool."""
        return self._announcement.offered

    def on_disconnect(self) -> None:
        """Note that the requests in the buffer came over a connection that is now lost."""
        self._buffered_before_disconnect = self._requests.pending_msgs if self._requests is not None else 0

    async def send_heartbeats(self) -> None:
        """Send a heartbeat for each call that runs."""
        for call in list(self._calls.running.values()):
            await call.send_heartbeat(self._heartbeat)

    async def _on_request(self, message: Msg) -> None:
        is_from_lost_connection = self._buffered_before_disconnect > 0
        self._buffered_before_disconnect -= is_from_lost_connection
        try:
            request = wire.ToolCall.model_validate_json(message.data)
        except ValidationError as error:
            reason = f"not a tool call: {str(error)[:_MAX_REQUEST_ERROR_CHARACTERS]}"
            await self._send_all(message.reply, failure_replies(reason, "bad_request"))
            return
        key = request.idempotency_key, request.round
        call = self._calls.find(key)
        if call is not None:
            await call.join(message.reply, self._heartbeat)
            return
        if self._stall.just_resumed and (is_from_lost_connection or await self._is_stale(key)):
            logger.warning("%s: call %s was cancelled while this process was stopped", self._tool.name, key[0])
            if request.understands_declined:
                await self._send_all(message.reply, [_declined("late")])
            # Any other caller that still waits sends a status request, and no instance answers that it has the call.
            return
        if self._clock.is_late(request):
            await self._send_all(message.reply, self._too_late(request))
            return
        if request.understands_declined and self._calls.is_full(self._tool.spec.concurrency):
            await self._send_all(message.reply, [_declined("busy")])
            return
        call = Call(request, message.reply, self._send, self._clock)
        self._calls.running[call.key] = call
        self._spawn(self._run(call))

    def _too_late(self, request: wire.ToolCall) -> list[Reply]:
        logger.warning("%s: call %s came too late and was not started", self._tool.name, request.idempotency_key)
        if request.understands_declined:
            return [_declined("late")]
        reason = "the call reached the tool too late to be started"
        return failure_replies(reason, "deadline_passed", retryable=True)

    async def _is_stale(self, key: Key) -> bool:
        reconnects = self._client.stats["reconnects"]
        await self._stall.read_backlog()
        is_same_connection = self._client.is_connected and self._client.stats["reconnects"] == reconnects
        return not is_same_connection or key in self._cancelled_keys

    async def _on_status(self, message: Msg) -> None:
        call = self._calls.find(_key(message))
        if call is not None and message.reply:
            await call.join(message.reply, self._heartbeat)

    async def _on_cancel(self, message: Msg) -> None:
        key = _key(message)
        call = self._calls.find(key)
        if call is not None:
            call.cancel(ToolError("the call was cancelled", code="cancelled"))
        elif self._stall.just_resumed:
            self._cancelled_keys.add(key)
        else:
            self._cancelled_keys.clear()

    async def _on_rejected(self, message: Msg) -> None:
        rejected = parsed(wire.ResultRejected, message.data)
        if rejected is not None and self._calls.find((rejected.idempotency_key, rejected.round)) is not None:
            self._log_failure(rejected.idempotency_key, f"{rejected.code}: {rejected.reason}")

    async def _on_given(self, message: Msg) -> None:
        given = parsed(artifacts.BytesGiven, (message.headers or {}).get(artifacts.GIVEN_HEADER, ""))
        call = self._calls.find((given.idempotency_key, given.round)) if given is not None else None
        if given is not None and call is not None:
            call.take(given, message.data)

    def _log_failure(self, key: str, reason: str) -> None:
        text = reason.encode(errors="backslashreplace").decode()  # A lone surrogate stops what stores logs as UTF-8.
        logger.error("%s: call %s failed: %s", self._tool.name, key, text)

    async def _run(self, call: Call) -> None:
        began, reason = time.perf_counter_ns(), None
        try:
            ended = await self._end(call)
        except Exception as error:  # noqa: BLE001, wrong arguments; and whatever fails here, the call ends
            ended = error
        if isinstance(ended, TooLate):
            await call.end(self._too_late(call.request))
            del self._calls.running[call.key]  # It never began, so it may come again.
            return
        if isinstance(ended, BaseException):
            reason, ended = self._failed(call, ended)
        self._announcement.stats.count(began, reason)
        await call.end(ended)
        self._calls.move_to_ended(call)

    def _failed(self, call: Call, error: BaseException) -> tuple[str, list[Reply]]:
        """Log a failure and return its reason and replies, also if whatever is the author's of it fails in turn."""
        try:
            reason = _reason(error)
            self._log(call, error, reason)
            code, retryable = (error.code, error.retryable) if isinstance(error, ToolError) else ("tool_error", False)
            return reason, failure_replies(reason, code, retryable=retryable)
        except BaseException as fault:  # noqa: BLE001, a property of its class, or of the class of its class
            reason = _untold(error, fault)
            self._log_failure(call.request.idempotency_key, reason)
            return reason, failure_replies(reason, "tool_error", retryable=False)

    def _log(self, call: Call, error: BaseException, reason: str) -> None:
        if isinstance(error, ToolError) and error.code not in {"invalid_result", "invalid_pause"}:
            return  # The tool says so on purpose.
        if isinstance(error, ValidationError):  # Its own text shows values, of fields that may be for people only.
            reason += "\n" + "".join(traceback.format_tb(error.__traceback__))
        elif not isinstance(error, ToolError):
            reason = authors_trace(error)
        self._log_failure(call.request.idempotency_key, reason)

    async def _end(self, call: Call) -> list[Reply] | BaseException:
        """Run the function and return the replies that end the call, its result or its pause, or what it raised."""
        loop = asyncio.get_running_loop()
        arguments = self._tool.check(call.request.args)
        context = CallContext(call, loop, self._clock)
        execution = self._executor.start(self._tool, arguments, context, call.may_begin)
        call.interrupt = execution.stop

        def begin_watch() -> None:
            self._spawn(call.send_heartbeat(self._heartbeat))
            self._watch(call)

        call.timer = loop.call_later(_FIRST_HEARTBEAT_S, begin_watch)
        try:
            result = await execution.outcome
        finally:
            call.timer.cancel()
        if isinstance(result, BaseException):
            pause = pause_in(result)
            return result if pause is None else [reply_of("pause", pause.model_dump_json().encode())]
        context.check_not_caught()
        return [*context.content_replies(), *result_replies(result, self._client.max_payload)]

    def _watch(self, call: Call) -> None:
        """End a call whose deadline has passed or whose function was silent for too long; else check again then."""
        timeout_s = self._tool.spec.timeout_s
        silent_s = timeout_s - (time.monotonic() - call.last_sign_at)
        left_s = self._clock.ms_until(call.request.deadline_at) / 1000
        if left_s <= 0:
            call.cancel(ToolError("the call's deadline passed", code="deadline_passed"))
        elif silent_s <= 0:
            reason = f"the tool's function reported nothing for {timeout_s:g} s"
            call.cancel(ToolError(reason, code="tool_timed_out"))
        else:
            call.timer = asyncio.get_running_loop().call_later(min(silent_s, left_s), self._watch, call)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, subject: str, reply: Reply) -> None:
        headers, body = reply
        try:
            await self._client.publish(subject, body, headers=headers)
        except MaxPayloadError:
            logger.warning("%s: a reply of %d bytes exceeds the server's max_payload", self._tool.name, len(body))
        except NATS_ERRORS as error:
            # The caller asks again once both are connected; the call is kept until then.
            logger.debug("%s: a reply was not sent: %r", self._tool.name, error)

    async def _send_all(self, subject: str, replies: list[Reply]) -> None:
        for reply in replies if subject else ():
            await self._send(subject, reply)


def _declined(reason: Literal["busy", "late"]) -> Reply:
    return reply_of("declined", wire.Declined(reason=reason).model_dump_json().encode())


def _reason(error: BaseException) -> str:
    try:
        if isinstance(error, ValidationError):
            return f"{error.title}: {describe(error)}"
        return str(error.reason) if isinstance(error, ToolError) else f"{_name(type(error))}: {error}"
    except BaseException as fault:  # noqa: BLE001, its `__str__` is the author's
        return _untold(error, fault)


def _untold(error: BaseException, fault: BaseException) -> str:
    return f"{_name(type(error))}, whose text cannot be made ({_name(type(fault))})"


def _key(message: Msg) -> Key:
    """The key of the call in a status or cancel request; empty when it cannot be read."""
    question = parsed(wire.CallQuestion, message.data)
    return (question.idempotency_key, question.round) if question is not None else ("", 0)


def authors_trace(error: BaseException) -> str:
    """Return a traceback without the frames that call the author's file, unless the error is not of it."""
    trace = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in trace.stack if not frame.filename.startswith(_CALLERS)]
    is_authors = frames or isinstance(error, SyntaxError)
    trace.stack = traceback.StackSummary.from_list(frames if is_authors else trace.stack)
    return "".join(trace.format()).rstrip()
