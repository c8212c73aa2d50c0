"""Reads: a gateway or planner calls a tool that changes nothing, for no run, and any instance answers at once.

Rule 1: nothing is stored, so nothing is repeated here: who asked asks again, or its caller does.
Rule 2: a reply goes to the inbox of who may ask and nowhere else. What does not ask from there is dropped.
Rule 3: at most `MAX_READS` wait at once; one more fails at once and may be repeated.
Rule 4: the arguments are checked and the result is separated as those of every call are (`execution`).
"""

import asyncio

import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts.tools.messages import CallRequested, ReadRequested
from contracts.wire import subjects
from contracts.wire.faults import Fault
from contracts.wire.names import new_id, unix_ms
from contracts.wire.subject import TOOL_RUNNER
from services.messaging.connection import Bus
from services.messaging.nats_connection import Subscription
from services.runtime.tasks import cancelled, start_in

from .execution import CallExecutor
from .results.outcomes import failed

logger = structlog.get_logger(__name__)

MAX_READ_S = 10.0
"""Longest time of a read."""
MAX_READS = 256
"""Reads of one instance at the same time."""
_TOO_MANY = Fault(code="tool_unavailable", reason="too many reads wait; try again", retryable=True)
_TOO_LARGE = Fault(
    code="result_too_large", reason="the result is larger than a message of this NATS server: ask for less"
)
_INBOXES = tuple(f"{subjects.replies_to(asker)}." for asker in subjects.tool_read.writes)


class ToolReads:
    """The reads that this instance answers."""

    def __init__(self, bus: Bus, executor: CallExecutor) -> None:
        self._bus = bus
        self._executor = executor
        self._reading: set[asyncio.Task[None]] = set()
        self._subscription: Subscription | None = None

    async def start(self) -> "ToolReads":
        """Take requests."""
        self._subscription = await self._bus.subscribe(subjects.tool_read(), self._on_request, TOOL_RUNNER)
        return self

    async def stop(self) -> None:
        """Take no more requests, and leave those that are under way: who asked notices it."""
        if self._subscription is not None:
            await self._subscription.stop()
        await cancelled(*self._reading)

    async def _on_request(self, message: Msg) -> None:
        if message.reply.startswith(_INBOXES) and "Nats-Subject" not in (message.headers or {}):
            start_in(self._reading, self._answer(message))

    async def _answer(self, message: Msg) -> None:
        try:
            asked = ReadRequested.model_validate_json(message.data)
        except ValidationError:
            return  # Not from a service of this version; it stops waiting.
        deadline_at = unix_ms() + int(MAX_READ_S * 1000)
        call = CallRequested(
            **asked.model_dump(), call_id="1-1", run_id=new_id(), spec="", step=1, deadline_at=deadline_at
        )
        is_full = len(self._reading) > MAX_READS
        reply = failed(call.call_id, call.tool, _TOO_MANY, 0) if is_full else await self._executor.read(call)
        if len(reply) > self._bus.nc.max_payload:
            reply = failed(call.call_id, call.tool, _TOO_LARGE, 0)
        if not await self._bus.send(message.reply, reply):
            logger.info("read_not_answered", tool=call.tool)  # There is no connection: who asked stops waiting.
