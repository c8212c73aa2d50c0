"""One tool of a process, on the bus.

Rule 1: calls run at the same time; how many, over all instances, is bounded by the sender.
Rule 2: heartbeats say that the process is alive, the function's own signs that it gets on: without any for `timeout_s`
it is given up.
Rule 3: nothing is started that nobody waits for: a process that was stopped finds old requests in its socket when it
wakes up. Those behind which a cancel stands, or that came over a connection that is lost, are not started (`waking`).
Rule 4: the function runs once per idempotency key; who asks again joins (`held`).
Rule 5: nothing needs rights beyond `tool.<name>`, its `.status` and `.cancel`, `$SRV` and answering: there is no
request of our own.
"""

import asyncio
import contextlib
import logging
import time
import traceback
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from pydantic import ValidationError

from runwire._contracts_import import subjects
from runwire._contracts_import import tools as wire
from runwire.serving.announcement import Announcement
from runwire.serving.calls import CallContext, HeldCall, HeldCalls, Reply, failure_replies, reply_of, result_replies
from runwire.serving.executor import Workers
from runwire.serving.stall import Waking
from runwire.tools.context import ToolError
from runwire.tools.decorator import BEAT_S, Tool
from runwire.tools.signatures import complaint

logger = logging.getLogger("runwire.serving")

_BEAT = reply_of("heartbeat", wire.Heartbeat(every_s=BEAT_S).model_dump_json().encode())
_QUICK_S = 0.03
"""A call that takes longer shows at once that it has begun."""
_MAX_REASON = 2000


class ServedTool:
    """One tool of this process, on the bus."""

    def __init__(self, client: Client, tool: Tool[..., Any], workers: Workers, waking: Waking) -> None:
        self._client = client
        self._tool = tool
        self._workers = workers
        self._waking = waking
        self._called_off: set[str] = set()
        """Calls that were cancelled before they were begun here, as read since the process woke up."""
        self._calls = HeldCalls()
        self._tasks: set[asyncio.Task[None]] = set()
        self._announcement = Announcement(client, tool)
        self._requests: Subscription | None = None
        self._of_lost_connection = 0
        """So many of the requests that come next were read from a connection that is lost."""
        self._questions: list[Subscription] = []

    async def start(self) -> None:
        """Take calls, then say so."""
        name = self._tool.name
        self._questions = [
            await self._client.subscribe(subjects.tool_status(name), cb=self._on_status),
            await self._client.subscribe(subjects.tool_cancel(name), cb=self._on_cancel),
        ]
        self._requests = await self._client.subscribe(subjects.tool(name), queue=name, cb=self._on_request)
        await self._announcement.start()

    async def stop(self, grace_s: float) -> None:
        """Take no more calls; give those in flight `grace_s` seconds, and then abandon them in silence: a new copy may do them."""
        await self._announcement.stop()
        with contextlib.suppress(NatsError, ConnectionError, OSError, TimeoutError):
            if self._requests is not None:
                await self._requests.drain()  # type: ignore[no-untyped-call]  # nats-py does not annotate it
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        for question in self._questions:
            with contextlib.suppress(NatsError, ConnectionError, OSError):
                await question.unsubscribe()

    def lose_connection(self) -> None:
        """What waits to be handled now came over a connection that is lost; nothing of the next one is among it."""
        self._of_lost_connection = self._requests.pending_msgs if self._requests is not None else 0

    async def beat(self) -> None:
        """Tell those who wait for calls in flight that they are alive."""
        for held in self._calls.running():
            await held.beat(_BEAT)

    async def _on_request(self, message: Msg) -> None:
        of_lost_connection = self._of_lost_connection > 0
        self._of_lost_connection -= of_lost_connection
        try:
            call = wire.ToolCall.model_validate_json(message.data)
        except ValidationError as error:
            await self._send_all(message.reply, failure_replies(f"not a tool call: {str(error)[:300]}", "bad_request"))
            return
        held = self._calls.find(call.idempotency_key)
        if held is not None:
            await held.join(message.reply, _BEAT)
            return
        if self._waking.just_woke and (of_lost_connection or await self._is_stale(call.idempotency_key)):
            logger.warning(
                "%s: call %s was called off while this process was stopped", self._tool.name, call.idempotency_key
            )
            # A caller that still waits asks for its status, and every instance answers that it does not have it.
            return
        if time.time() * 1000 > min(call.deadline_at, call.start_by or call.deadline_at):
            logger.warning("%s: call %s came too late and was not started", self._tool.name, call.idempotency_key)
            reason = "the call reached the tool after the time until which it may start; it was not started"
            await self._send_all(message.reply, failure_replies(reason, "deadline_passed", retryable=True))
            return
        held = HeldCall(call, message.reply, self._send)
        self._calls.add(held)
        task = asyncio.create_task(self._work(held))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _is_stale(self, key: str) -> bool:
        reconnects = self._client.stats["reconnects"]
        await self._waking.read_on()
        is_same_connection = self._client.is_connected and self._client.stats["reconnects"] == reconnects
        return not is_same_connection or key in self._called_off

    async def _on_status(self, message: Msg) -> None:
        held = self._calls.find(_key(message))
        if held is not None and message.reply:
            await held.join(message.reply, _BEAT)

    async def _on_cancel(self, message: Msg) -> None:
        key = _key(message)
        held = self._calls.find(key)
        if held is not None:
            held.cancel()
        elif self._waking.just_woke:
            self._called_off.add(key)
        else:
            self._called_off.clear()

    async def _work(self, held: HeldCall) -> None:
        began, error = time.perf_counter_ns(), None
        try:
            replies = result_replies(await self._result(held), self._client.max_payload)
        except ToolError as failure:
            error = failure.reason
            replies = failure_replies(error[:_MAX_REASON], failure.code, retryable=failure.retryable)
        except ValidationError as failure:
            # In its own words it shows values, of fields that may be for people only.
            error = f"{failure.title}: {complaint(failure)}"
            where = "".join(traceback.format_tb(failure.__traceback__))
            logger.error("%s: call %s failed: %s\n%s", self._tool.name, held.call.idempotency_key, error, where)  # noqa: TRY400, the same
            replies = failure_replies(error[:_MAX_REASON], "tool_error")
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            logger.exception("%s: call %s failed", self._tool.name, held.call.idempotency_key)
            replies = failure_replies(error[:_MAX_REASON], "tool_error")
        self._announcement.stats.count(began, error)
        await held.end(replies)
        self._calls.finish(held)

    async def _result(self, held: HeldCall) -> bytes:
        arguments = self._tool.check(held.call.args)
        context = CallContext(held, asyncio.get_running_loop())
        outcome = asyncio.wrap_future(self._workers.start(self._tool, arguments, context))
        held.stop = outcome.cancel
        await asyncio.wait((outcome,), timeout=_QUICK_S)
        if not outcome.done():
            await held.beat(_BEAT)
        while True:
            silent_s = self._tool.spec.timeout_s - (time.monotonic() - held.signed_at)
            left_s = held.call.deadline_at / 1000 - time.time()
            await asyncio.wait((outcome,), timeout=max(0.0, min(silent_s, left_s)))
            if outcome.done():
                if held.cancelled:
                    raise ToolError("the call was cancelled", code="cancelled")
                if outcome.cancelled():
                    raise ToolError("the tool cancelled itself")
                return outcome.result()
            if time.time() * 1000 >= held.call.deadline_at:
                held.cancel()
                raise ToolError("the call's deadline passed", code="deadline_passed")
            if time.monotonic() - held.signed_at >= self._tool.spec.timeout_s:
                held.cancel()
                raise ToolError(
                    f"no sign of the tool's function for {self._tool.spec.timeout_s:g} s", code="tool_timed_out"
                )

    async def _send(self, subject: str, reply: Reply) -> None:
        headers, body = reply
        try:
            await self._client.publish(subject, body, headers=headers)
        except MaxPayloadError:
            logger.warning("%s: a reply of %d bytes is more than the server takes", self._tool.name, len(body))
        except (NatsError, ConnectionError, OSError) as error:
            # Who waits asks again once both are connected; the call is held until then.
            logger.debug("%s: a reply was not sent: %r", self._tool.name, error)

    async def _send_all(self, subject: str, replies: list[Reply]) -> None:
        for reply in replies if subject else ():
            await self._send(subject, reply)


def _key(message: Msg) -> str:
    """The idempotency key that a question is about; empty when it is no question."""
    try:
        return wire.CallQuestion.model_validate_json(message.data).idempotency_key
    except ValidationError:
        return ""
