"""Handle a call: read it, have it executed, and write the one outcome into the run's inbox.

Rule 1: each handling is counted (`dead_letters.count_start`) before the message is parsed, since parsing may be what
kills the process.
Rule 2: the outcome is stored before the call is acknowledged.

A read is a call for no run of a tool that changes nothing, from a gateway or planner; any instance answers at once.

Rule 1: nothing is stored, so nothing is repeated here: who asked asks again, or its caller does.
Rule 2: at most `MAX_READS` wait at once; one more fails at once and may be repeated.
Rule 3: the arguments are checked and the result is separated as those of every call are (`execution`).
"""

import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts.tools.messages import CallRequested, ReadRequested
from contracts.wire import names, subjects
from contracts.wire.base import parsed
from contracts.wire.faults import Fault, describe
from contracts.wire.names import InvalidName, new_id, unix_ms
from services.messaging import dead_letters
from services.messaging.connection import Answerer, Bus
from services.messaging.pull_consumer import Delivery

from .direct_calls import DirectCalls
from .errors import AlreadyCompleted, Poisoned, RunEnded
from .execution import CallExecutor
from .results.outcomes import RoundEnd, failed

logger = structlog.get_logger(__name__)

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


def _read(delivery: Delivery) -> CallRequested:
    """Return the call in a message. Raises NotACall."""
    try:
        address = subjects.parse(delivery.subject)
        call = CallRequested.model_validate_json(delivery.data)
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
        if (asked := parsed(ReadRequested, message.data)) is None:
            return  # Not from a service of this version; it stops waiting.
        deadline_at = unix_ms() + int(MAX_READ_S * 1000)
        call = CallRequested(
            **asked.model_dump(), call_id="1-1", run_id=new_id(), spec="", step=1, deadline_at=deadline_at
        )
        is_full = len(self._answering) > MAX_READS
        reply = failed(call.call_id, call.tool, _TOO_MANY, 0) if is_full else await self._executor.read(call)
        if len(reply) > self._bus.nc.max_payload:
            reply = failed(call.call_id, call.tool, _TOO_LARGE, 0)
        if not await self._bus.send(message.reply, reply):
            logger.info("read_not_answered", tool=call.tool)  # There is no connection: who asked stops waiting.
