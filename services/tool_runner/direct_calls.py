"""Direct calls: a planner calls this instance by a request, without the stored queue CALLS (contracts/tools).

Rule 1: the planner has recorded the call, with the name of this instance, before it sends the request. So nothing is
read or written here before the tool is called.
Rule 2: this instance remembers for two minutes which calls it has received. A planner that takes a run over asks
whether its call is among them. A call that is not is declined from then on, so the answer stays true.
Rule 3: after a second the reply is `unfinished`, and the call goes on here. The planner then sends it through CALLS;
if it comes to this instance, its outcome is that of the call in progress. The reply is the same when the tool pauses:
a pause goes through the inbox, as the messages of people do.
Rule 4: a tool's `concurrency` holds over both paths (`limits`).
"""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, cast

import structlog
from nats.aio.msg import Msg

from contracts.tools.messages import DIRECT_HEADER, CallRequested, DirectReply, ReceivedAnswer, ReceivedQuestion
from contracts.wire import names, subjects
from contracts.wire.base import parsed
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus
from services.messaging.nats_connection import Subscription
from services.runtime.tasks import code_locations, start_in
from services.tool_runner.results.outcomes import RoundEnd

from .errors import AlreadyCompleted, RunEnded
from .execution import CallExecutor

logger = structlog.get_logger(__name__)

_ANSWER_WITHIN_S = 1.0
_REMEMBERED_S = 120.0
_MAX_AGE_S = 60.0
"""Of an older call the answer is always that it was received: this instance may have forgotten it."""
_MAX_OUTCOMES_BYTES = 32 << 20
_LEAVING_S = 0.2
"""How long calls are declined by an instance that stops: planners learn of it by then."""
_CHECKED_WITH_EACH_CALL = 4
"""So many of the oldest calls may be forgotten when a call comes. One would not be enough after a busy time."""


@dataclass(slots=True)
class _Received:
    """What is known of a call."""

    at: float
    """When it was received, or when it ended."""
    is_refused: bool = False
    """The tool was not called for it, and will not be."""
    task: asyncio.Task[RoundEnd | None] | None = None
    """Returns how the call has ended, or None if it was declined. No task: it has not ended, or that was forgotten."""

    def is_outdated(self, now: float) -> bool:
        """Whether the call can be another one by now, of a run that was purged and requested again under its id."""
        return self.at < now - _REMEMBERED_S and (self.task is None or self.task.done())


class DirectCalls:
    """The direct calls of this instance of tool_runner."""

    def __init__(self, bus: Bus, executor: CallExecutor, instance: str) -> None:
        self._bus = bus
        self._executor = executor
        self._instance = instance
        self._received: OrderedDict[str, _Received] = OrderedDict()
        self._outcomes: OrderedDict[str, int] = OrderedDict()
        """Call whose outcome is kept -> size of the outcome in bytes."""
        self._outcomes_bytes = 0
        self._answering: set[asyncio.Task[Any]] = set()
        self._subscriptions: list[Subscription] = []
        self._is_leaving = False

    async def start(self) -> "DirectCalls":
        """Take direct calls."""
        calls = await self._bus.receive(subjects.direct_call(self._instance), self._on_call)
        questions = await self._bus.subscribe(subjects.direct_status(self._instance), self._on_question)
        self._subscriptions = [calls, questions]
        return self

    async def stop(self) -> None:
        """Decline calls from now on, and answer those that were received."""
        self._is_leaving = True
        await asyncio.sleep(_LEAVING_S)
        for subscription in self._subscriptions:
            await subscription.stop()
        if self._answering:
            await asyncio.wait(self._answering, timeout=_ANSWER_WITHIN_S)

    async def outcome(self, call: CallRequested) -> RoundEnd | None:
        """Return how a call has ended that was received directly, once it has; None if it was not.

        Raises RunEnded or AlreadyCompleted.
        """
        received = self._received.get(_key(call)) if call.again else None
        return None if received is None or received.task is None else await asyncio.shield(received.task)

    def _on_call(self, message: Msg) -> None:
        if "Nats-Subject" in (message.headers or {}):
            return  # Not sent by a planner, but an answer of the server that somebody has sent here: forged.
        if (call := parsed(CallRequested, message.data)) is None:  # Where it is parsed next, handlings are counted.
            start_in(self._answering, self._reply(message, "declined"))
            return
        key = _key(call)
        is_late = call.start_by is None or unix_ms() > call.start_by
        received = self._received.get(key)
        if received is not None and received.is_outdated(time.monotonic()):
            self._forget(key)
        if self._is_leaving or is_late or key in self._received:
            start_in(self._answering, self._reply(message, "declined"))
            return
        task = start_in(self._answering, self._answer_call(message, call))
        self._remember(key, _Received(time.monotonic(), task=task))
        task.add_done_callback(partial(self._on_end, key))

    async def _answer_call(self, message: Msg, call: CallRequested) -> RoundEnd | None:
        """Return how the call has ended. The answer says it, unless it was `unfinished` before that."""

        def answer_unfinished() -> None:
            self._answering.discard(task)
            start_in(self._answering, self._reply(message, "unfinished"))

        structlog.contextvars.bind_contextvars(run_id=call.run_id, call_id=call.call_id, tool=call.tool)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        kind: DirectReply = "unfinished"
        body = b""
        timer = asyncio.get_running_loop().call_later(_ANSWER_WITHIN_S, answer_unfinished)
        try:
            ending = await self._executor.direct_outcome(call, partial(self._reply, message, "begun"))
            if ending is None:
                kind = "declined"
            elif not ending.is_pause:
                kind, body = "finished", ending.body
            return ending
        finally:
            if task in self._answering:
                timer.cancel()
                await self._reply(message, kind, body)

    async def _reply(self, message: Msg, kind: DirectReply, body: bytes = b"") -> bool:
        return await self._bus.send(message.reply, body, {DIRECT_HEADER: kind})

    async def _on_question(self, message: Msg) -> None:
        if (question := parsed(ReceivedQuestion, message.data)) is None:
            return
        received = self._received.get(question.idempotency_key)
        if received is not None:
            is_received = not received.is_refused
        elif question.age_s > _MAX_AGE_S:
            is_received = True
        else:
            is_received = False
            self._remember(question.idempotency_key, _Received(time.monotonic(), is_refused=True))
        await self._bus.send(message.reply, ReceivedAnswer(received=is_received).model_dump_json().encode())

    def _on_end(self, key: str, task: asyncio.Task[RoundEnd | None]) -> None:
        received = self._received.get(key)
        if received is None or task.cancelled():
            return
        if (error := task.exception()) is not None:
            if not isinstance(error, RunEnded | AlreadyCompleted):
                logger.error("direct_call_failed", error=type(error).__name__, places=code_locations(error))
                received.task = None
            return
        received.at = time.monotonic()
        self._received.move_to_end(key)
        ending = task.result()
        received.is_refused = ending is None
        self._outcomes[key] = 0 if ending is None else len(ending.body)
        self._outcomes_bytes += self._outcomes[key]
        while self._outcomes_bytes > _MAX_OUTCOMES_BYTES:
            oldest = next(iter(self._outcomes))
            self._received[oldest].task = None
            self._forget_outcome(oldest)

    def _remember(self, key: str, received: _Received) -> None:
        self._received[key] = received
        for oldest, known in list(islice(self._received.items(), _CHECKED_WITH_EACH_CALL)):
            if known.at >= received.at - _REMEMBERED_S:
                return
            if not known.is_outdated(received.at):
                known.at = received.at
                self._received.move_to_end(oldest)
                continue
            self._forget(oldest)

    def _forget(self, key: str) -> None:
        del self._received[key]
        self._forget_outcome(key)

    def _forget_outcome(self, key: str) -> None:
        self._outcomes_bytes -= self._outcomes.pop(key, 0)


def _key(call: CallRequested) -> str:
    return names.round_key(call.run_id, call.call_id, call.round)
