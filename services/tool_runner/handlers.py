"""Handle a call: read it, have it executed, and write the one outcome into the run's inbox.

Rule 1: each handling is counted (`dead_letters.count_start`) before the message is parsed, since parsing may be what
kills the process.
Rule 2: the outcome is stored before the call is acknowledged.
"""

import structlog
from pydantic import ValidationError

from contracts import names, subjects
from contracts.names import InvalidName
from contracts.subjects import Address
from contracts.tools import CallRequested
from contracts.validation_errors import describe
from services.messaging import dead_letters
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery

from .direct_calls import DirectCalls
from .errors import AlreadySettled, Poisoned, RunEnded
from .execution import CallExecutor
from .outcomes import failed

logger = structlog.get_logger(__name__)

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
                outcome = await self._direct_calls.outcome(call) or await self._executor.outcome(delivery, call)
            except RunEnded:
                logger.info("call_dropped", reason="its run has ended")
            except AlreadySettled:
                logger.info("call_dropped", reason="it is settled")
            else:
                await self._finish(call.tenant, call.run_id, call.call_id, outcome)
        return True

    async def _finish(self, tenant: str, run: str, call_id: str, outcome: bytes) -> None:
        await self._bus.publish_surely(subjects.inbox(tenant, run, call_id), outcome, f"{run}.{call_id}")

    async def _dead_letter(self, delivery: Delivery, reason: str) -> bool:
        """Store the message in DEAD. If its subject and id name a call, write a failure so that the run continues."""
        await dead_letters.dead_letter(self._bus, delivery, reason)
        named = _named(delivery)
        if named is not None:
            address, call_id = named
            logger.info("call_failed", run_id=address.run, call_id=call_id, tool=address.name, code="poisoned")
            fault = Poisoned(f"the call could not be handled: {reason[:_MAX_REASON_CHARACTERS]}").fault()
            await self._finish(address.tenant, address.run, call_id, failed(call_id, address.name, fault))
        return True


def _read(delivery: Delivery) -> CallRequested:
    """Return the call in a message. Raises NotACall."""
    try:
        address = subjects.parse(delivery.subject)
        call = CallRequested.model_validate_json(delivery.data)
        names.checked_message(call.call_id)
    except ValidationError as error:
        raise NotACall(describe(error, limit=1)) from error
    except (InvalidName, RecursionError) as error:
        raise NotACall(str(error)) from error
    if (address.tenant, address.run, address.name) != (call.tenant, call.run_id, call.tool):
        raise NotACall("its body names another run or tool than its subject")
    return call


def _named(delivery: Delivery) -> tuple[Address, str] | None:
    """Return the call that a message is about, from its subject and message id, without parsing the body."""
    try:
        address = subjects.parse(delivery.subject)
        run, _, call_id = delivery.headers.get(_MESSAGE_ID, "").partition(".")
        return (address, names.checked_message(call_id)) if run == address.run else None
    except InvalidName:
        return None
