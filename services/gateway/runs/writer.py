"""Write messages for planners. Each is stored before its caller gets an answer.

A message id makes repetitions harmless. A write is repeated for a few seconds; then the caller gets 503 with
`Retry-After`.
"""

import time

import structlog

from services.gateway.errors import TryAgain
from services.messaging.connection import Bus
from services.messaging.errors import FULL, Refused, Unsure
from services.messaging.writes import Acknowledged

logger = structlog.get_logger(__name__)

_ATTEMPT_TIMEOUT_S = 1.0


class MessageWriter:
    """Writes messages to the streams of planners."""

    def __init__(self, bus: Bus, wait_s: float) -> None:
        """`wait_s`: how long a write is tried."""
        self._bus = bus
        self._wait_s = wait_s

    async def store(self, subject: str, data: bytes, message_id: str) -> Acknowledged:
        """Return once the message is stored. Raises TryAgain when that is unknown or impossible."""
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                timeout_s = min(_ATTEMPT_TIMEOUT_S, self._wait_s)
                headers = {"Nats-Msg-Id": message_id}
                return await self._bus.publish_acknowledged(subject, data, headers, timeout_s)
            except Unsure as error:
                if time.monotonic() >= deadline:
                    raise TryAgain("The message bus does not answer.") from error
                await self._bus.retry_pause(is_bounded=True)
            except Refused as error:
                if error.is_second_of_subject:
                    # The run's request is stored, and no planner has taken it yet.
                    return Acknowledged(0, is_repeated=True)
                logger.warning("write_refused", subject=subject, code=error.code, reason=error.text)
                raise TryAgain("The queue of new runs is full." if error.code == FULL else None, after_s=5) from error
