"""Send requests to the artifact store, and repeat them while it, its S3 server or NATS is unavailable.

Rule 1: a request is repeated up to the patience of its caller, then it raises StorageUnavailable. Repetition is
harmless: every request names its artifact.
Rule 2: a request that was lost with its connection is noticed within seconds, not at the end of the wait.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nats.aio.msg import Msg

from contracts.artifacts.references import WARNING_HEADER
from contracts.tools.messages import REPLY_HEADER
from contracts.wire.base import Message
from contracts.wire.faults import Fault
from services.messaging.connection import Bus
from services.messaging.errors import NoResponders, Refused, Unavailable
from services.shared.artifacts.errors import ArtifactFailed, ArtifactTooLarge, StorageUnavailable, failure_of

T = TypeVar("T")
MessageT = TypeVar("MessageT", bound=Message)

_ANSWER_S = 15.0
_PROBE_S = 2.0


class StoreRequests:
    """Requests to the artifact store. `patience_s`: how long one of them is repeated."""

    def __init__(self, bus: Bus, patience_s: float) -> None:
        self._bus = bus
        self._patience_s = patience_s

    async def answered(self, subject: str, message: Message, kind: type[MessageT]) -> MessageT:
        """Send a request until it is answered, and return the answer. Raises a kind of ArtifactFailed."""
        answer = await self.until_answered(lambda: self.send(subject, message.model_dump_json().encode()))
        return kind.model_validate_json(answer.data)

    async def until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` until it succeeds, fails permanently, or the patience is over."""
        until = time.monotonic() + self._patience_s
        for tried in itertools.count(1):
            try:
                return await attempt()
            except ArtifactFailed as error:
                if not error.retryable or time.monotonic() >= until:
                    raise
            await self._bus.retry_pause(tried, is_bounded=True)
        raise AssertionError

    async def send(
        self,
        subject: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        wait_s: float | None = None,
        is_lost: Callable[[], Awaitable[bool]] | None = None,
    ) -> Msg:
        """Send one request. Raises the store's error, or StorageUnavailable when no reply can come."""
        since = self._bus.up_since
        request = asyncio.create_task(self._bus.request(subject, body, wait_s or _ANSWER_S, headers))
        try:
            while not (await asyncio.wait({request}, timeout=_PROBE_S))[0]:
                # Requests in flight are lost silently when the connection breaks.
                lost = self._bus.up_since != since or (is_lost is not None and await is_lost())
                if lost and not request.done():
                    raise StorageUnavailable("the request was lost on its way")
        finally:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        try:
            answer = request.result()
        except Refused as error:
            raise ArtifactTooLarge("NATS does not take messages of two megabytes: set max_payload to 8MB") from error
        except Unavailable as error:
            raise StorageUnavailable(f"the artifact store does not answer ({error})") from error
        if (answer.headers or {}).get(REPLY_HEADER) != "result":
            raise failure_of(Fault.model_validate_json(answer.data))
        return answer

    async def is_refused(self, subject: str, headers: dict[str, str]) -> bool:
        """Send a request without a body. Return whether nobody receives it, or the reply is a failure."""
        try:
            answer = await self._bus.request(subject, b"", _PROBE_S, headers)
        except NoResponders:
            return True
        except Unavailable:
            return False
        return (answer.headers or {}).get(REPLY_HEADER) != "result"


def header_value(message: Message) -> str:
    """Return a message as the value of a header: JSON in ASCII."""
    return json.dumps(message.model_dump(mode="json", exclude_none=True))


def warning_of(answer: Msg) -> str | None:
    """Return what a reply says although the put has succeeded, or None."""
    return (answer.headers or {}).get(WARNING_HEADER)
