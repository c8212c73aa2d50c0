"""Handle calls: stored ones, direct ones, and reads.

A stored call comes through CALLS. It is read and executed, and its one outcome is written into the run's inbox.

Rule 1: each handling is counted (`dead_letters.count_start`) before the message is parsed, since parsing may be what
kills the process.
Rule 2: the outcome is stored before the call is acknowledged.

A direct call is a request of a planner to this instance (contracts/tools).

Rule 3: the planner has recorded the call, with the name of this instance, before it sends the request. So nothing is
read or written here before the tool is called.
Rule 4: this instance remembers for two minutes which calls it has received. A planner that takes a run over asks
whether its call is among them. A call that is not is declined from then on, so the answer stays true.
Rule 5: after a second the reply is `unfinished`, and the call goes on here. The planner then sends it through CALLS;
if it comes to this instance, its outcome is that of the call in progress. The reply is the same when the tool pauses:
a pause goes through the inbox, as the messages of people do.
Rule 6: a tool's `concurrency` holds over both paths (`call_consumers`).

A read is a call for no run of a tool that changes nothing, from a gateway or planner; any instance answers at once.

Rule 7: nothing is stored, so nothing is repeated here: who asked asks again, or its caller does.
Rule 8: at most `MAX_READS` wait at once; one more fails at once and may be repeated.
Rule 9: the arguments are checked and the result is separated as those of every call are (`execution`).
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
from pydantic import ValidationError

from contracts.tools import messages
from contracts.wire import names, subjects
from contracts.wire.base import parsed
from contracts.wire.faults import Fault, describe
from contracts.wire.names import InvalidName, new_id, unix_ms
from services.messaging import dead_letters
from services.messaging.connection import Answerer, Bus
from services.messaging.nats_connection import Subscription
from services.messaging.pull_consumer import Delivery
from services.runtime.tasks import code_locations, start_in

from .errors import AlreadyCompleted, Poisoned, RunEnded
from .execution import CallExecutor
from .results.outcomes import RoundEnd, failed

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
MAX_READ_S = 10.0
"""Longest time of a read."""
MAX_READS = 256
"""Reads of one instance at the same time."""
_TOO_MANY = Fault(code="tool_unavailable", reason="too many reads wait; try again", retryable=True)
_TOO_LARGE = Fault(
    code="result_too_large", reason="the result is larger than a message of this NATS server: ask for less"
)
_MESSAGE_ID = "Nats-Msg-Id"
_MAX_REASON_CHARACTERS = 200


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

    async def outcome(self, call: messages.CallRequested) -> RoundEnd | None:
        """Return how a directly received call has ended, once it has; else None. Raises RunEnded, AlreadyCompleted."""
        received = self._received.get(_key(call)) if call.again else None
        return None if received is None or received.task is None else await asyncio.shield(received.task)

    def _on_call(self, message: Msg) -> None:
        if "Nats-Subject" in (message.headers or {}):
            return  # Not sent by a planner, but an answer of the server that somebody has sent here: forged.
        call = parsed(messages.CallRequested, message.data)
        if call is None:  # Where it is parsed next, handlings are counted.
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

    async def _answer_call(self, message: Msg, call: messages.CallRequested) -> RoundEnd | None:
        """Return how the call has ended. The answer says it, unless it was `unfinished` before that."""

        def answer_unfinished() -> None:
            self._answering.discard(task)
            start_in(self._answering, self._reply(message, "unfinished"))

        structlog.contextvars.bind_contextvars(run_id=call.run_id, call_id=call.call_id, tool=call.tool)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        kind: messages.DirectReply = "unfinished"
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

    async def _reply(self, message: Msg, kind: messages.DirectReply, body: bytes = b"") -> bool:
        return await self._bus.send(message.reply, body, {messages.DIRECT_HEADER: kind})

    async def _on_question(self, message: Msg) -> None:
        if (question := parsed(messages.ReceivedQuestion, message.data)) is None:
            return
        received = self._received.get(question.idempotency_key)
        if received is not None:
            is_received = not received.is_refused
        elif question.age_s > _MAX_AGE_S:
            is_received = True
        else:
            is_received = False
            self._remember(question.idempotency_key, _Received(time.monotonic(), is_refused=True))
        await self._bus.send(message.reply, messages.ReceivedAnswer(received=is_received).model_dump_json().encode())

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


def _key(call: messages.CallRequested) -> str:
    return names.round_key(call.run_id, call.call_id, call.round)


class NotACall(ValueError):
    """The message is not a valid call; the text says why."""


class CallHandler:
    """Handles calls of all tools. It keeps no durable state: another process may take over at any point."""

    def __init__(self, bus: Bus, executor: CallExecutor, direct_calls: DirectCalls, max_deliveries: int) -> None:
        self._bus = bus
        self._executor = executor
        self._direct_calls = direct_calls
        self._max_deliveries = max_deliveries

    async def on_call(self, delivery: Delivery) -> bool:
        """Handle one call and return True, which acknowledges it. A second handling finds what the first one wrote."""
        if (begun := await dead_letters.count_start(self._bus, delivery)) > self._max_deliveries:
            return await self._dead_letter(delivery, f"its handling was started {begun - 1} times and never finished")
        try:
            call = _read(delivery)
        except NotACall as error:
            return await self._dead_letter(delivery, str(error))
        with structlog.contextvars.bound_contextvars(run_id=call.run_id, call_id=call.call_id, tool=call.tool):
            try:
                ending = await self._direct_calls.outcome(call) or await self._executor.outcome(delivery, call)
            except RunEnded:
                logger.info("call_dropped", reason="its run has ended")
            except AlreadyCompleted:
                logger.info("call_dropped", reason="it is completed")
            else:
                await self._store(call.tenant, call.run_id, call.call_id, call.round, ending)
        return True

    async def _store(self, tenant: str, run: str, call_id: str, number: int, ending: RoundEnd) -> None:
        """Write how a round has ended into the run's inbox. Outcome and pause share the message id: there is one."""
        name = names.pause_of(call_id, number) if ending.is_pause else names.outcome_of(call_id, number)
        message_id = names.round_key(run, call_id, number)
        await self._bus.publish_surely(subjects.inbox(tenant, run, name), ending.body, message_id)

    async def _dead_letter(self, delivery: Delivery, reason: str) -> bool:
        """Store the message in DEAD. If its subject and id name a call, write a failure so that the run continues."""
        await dead_letters.dead_letter(self._bus, delivery, reason)
        try:
            address = subjects.parse(delivery.subject)
            run, call_id, number = names.parsed_round_key(delivery.headers.get(_MESSAGE_ID, ""))
        except InvalidName:
            return True
        if run == address.run:
            logger.info("call_failed", run_id=run, call_id=call_id, tool=address.name, code="poisoned")
            fault = Poisoned(f"the call could not be handled: {reason[:_MAX_REASON_CHARACTERS]}").fault()
            await self._store(address.tenant, run, call_id, number, RoundEnd(failed(call_id, address.name, fault)))
        return True


def _read(delivery: Delivery) -> messages.CallRequested:
    """Return the call in a message. Raises NotACall."""
    try:
        address = subjects.parse(delivery.subject)
        call = messages.CallRequested.model_validate_json(delivery.data)
        names.MESSAGE.checked(names.pause_of(call.call_id, call.round))
    except ValidationError as error:
        raise NotACall(describe(error, limit=1)) from error
    except (InvalidName, RecursionError) as error:
        raise NotACall(str(error)) from error
    if (address.tenant, address.run, address.name) != (call.tenant, call.run_id, call.tool):
        raise NotACall("its body names another run or tool than its subject")
    return call


class ToolReads(Answerer):
    """The reads that this instance answers."""

    def __init__(self, bus: Bus, executor: CallExecutor) -> None:
        super().__init__(bus, subjects.tool_read, subjects.tool_read.writes)
        self._executor = executor

    async def answer(self, message: Msg) -> None:
        """Make the call, and send its outcome."""
        if (asked := parsed(messages.ReadRequested, message.data)) is None:
            return  # Not from a service of this version; it stops waiting.
        deadline_at = unix_ms() + int(MAX_READ_S * 1000)
        call = messages.CallRequested(
            **asked.model_dump(), call_id="1-1", run_id=new_id(), spec="", step=1, deadline_at=deadline_at
        )
        is_full = len(self._answering) > MAX_READS
        reply = failed(call.call_id, call.tool, _TOO_MANY, 0) if is_full else await self._executor.read(call)
        if len(reply) > self._bus.nc.max_payload:
            reply = failed(call.call_id, call.tool, _TOO_LARGE, 0)
        if not await self._bus.send(message.reply, reply):
            logger.info("read_not_answered", tool=call.tool)  # There is no connection: who asked stops waiting.
