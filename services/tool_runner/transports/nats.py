"""Ask tools and hear what they say, for many calls over one subscription.

Rule 1: every question has a reply subject of its own, so that the parts of two answers to the same call never mix.
Rule 2: what waits to be heard is bounded in bytes: a tool that floods fails its own call and nobody else's.
Rule 3: what comes after a call has its outcome is counted and ignored.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import Literal, cast, get_args

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from contracts.tools import PARTS_HEADER, REPLY_HEADER, ReplyKind
from services.messaging.connection import Bus

logger = structlog.get_logger(__name__)

Kind = ReplyKind | Literal["nobody", "refused", "flood", "reconnected", "run_ended"]
"""What tools say; then what happens around a call: nobody listens, a micro library's error, too much, our own connection, the run."""

_KINDS = frozenset(get_args(ReplyKind))
_ERROR_HEADER = "Nats-Service-Error"


@dataclass(frozen=True, slots=True)
class Heard:
    """One thing that was heard in answer to the question `key`."""

    kind: Kind
    data: bytes = b""
    key: str = ""
    parts: str | None = None


class Conversation:
    """All questions about one call, and what comes back."""

    def __init__(self, exchange: "Exchange", max_waiting_bytes: int) -> None:
        self._exchange = exchange
        self._heard: deque[Heard] = deque()
        self._bytes = 0
        self._max_bytes = max_waiting_bytes
        self._more = asyncio.Event()
        self.keys: list[str] = []

    async def ask(self, subject: str, body: bytes) -> str | None:
        """Put a question and return its key; None when it was certainly not sent, since we are not connected."""
        key = self._exchange.new_key(self)
        self.keys.append(key)
        return key if await self._exchange.send(subject, body, key) else None

    async def hear(self, wait_s: float) -> Heard | None:
        """Return the next thing that is heard, or None after `wait_s` seconds of silence."""
        if not self._heard:
            self._more.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._more.wait()
            except TimeoutError:
                if not self._heard:
                    return None
        heard = self._heard.popleft()
        self._bytes -= len(heard.data)
        return heard

    def put(self, heard: Heard) -> None:
        """Let something be heard next in line."""
        if self._bytes + len(heard.data) > self._max_bytes:
            self._heard.clear()
            self._bytes = 0
            heard = Heard("flood")
        self._heard.append(heard)
        self._bytes += len(heard.data)
        self._more.set()

    def put_back(self, heard: Heard) -> None:
        """Let something be heard again, before all else."""
        self._heard.appendleft(heard)
        self._bytes += len(heard.data)
        self._more.set()

    def close(self) -> None:
        """Hear nothing more."""
        self._exchange.forget(self)


class Exchange:
    """The one subscription behind all conversations of this process."""

    def __init__(self, bus: Bus, max_waiting_bytes: int) -> None:
        self._bus = bus
        self._max_bytes = max_waiting_bytes
        self._numbers = count(1)
        self._open: dict[str, Conversation] = {}
        self._inbox = ""
        self.late = 0
        """Replies that came after their call had its outcome."""

    async def start(self) -> "Exchange":
        """Listen."""
        self._inbox = self._bus.nc.new_inbox() + "."
        await self._bus.nc.subscribe(self._inbox + "*", cb=self._on_message)
        self._bus.on_reconnect.append(self._on_reconnect)
        return self

    def open(self) -> Conversation:
        """Begin a conversation about one call; whoever begins it closes it."""
        return Conversation(self, self._max_bytes)

    def new_key(self, conversation: Conversation) -> str:
        """Give a question its key."""
        key = str(next(self._numbers))
        self._open[key] = conversation
        return key

    def forget(self, conversation: Conversation) -> None:
        """Close a conversation."""
        for key in conversation.keys:
            self._open.pop(key, None)

    async def send(self, subject: str, body: bytes, key: str) -> bool:
        """Send one question; False when it was certainly not sent."""
        try:
            await self._bus.nc.publish(subject, body, reply=self._inbox + key)
        except (NatsError, ConnectionError, OSError):
            return False
        return True

    async def _on_message(self, message: Msg) -> None:
        key = message.subject[len(self._inbox) :]
        conversation = self._open.get(key)
        heard = _heard(message, key)
        if conversation is not None:
            conversation.put(heard)
        elif heard.kind != "nobody":
            self.late += 1
            logger.debug("late_reply_ignored", kind=heard.kind, size=len(heard.data))

    async def _on_reconnect(self) -> None:
        for conversation in {id(one): one for one in self._open.values()}.values():
            conversation.put(Heard("reconnected"))


def _heard(message: Msg, key: str) -> Heard:
    headers = message.headers
    if not headers:
        return Heard("result", message.data, key)
    if not message.data and headers.get("Status") == "503":
        return Heard("nobody", b"", key)
    if _ERROR_HEADER in headers:
        return Heard("refused", headers[_ERROR_HEADER].encode(), key)
    kind = headers.get(REPLY_HEADER, "result")
    if kind not in _KINDS:
        logger.debug("reply_of_unknown_kind", kind=kind[:40])
        return Heard("heartbeat", b"{}", key)  # A newer tool says something that we do not know: at least it lives.
    return Heard(cast("Kind", kind), message.data, key, headers.get(PARTS_HEADER))
