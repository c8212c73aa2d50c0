"""One round of discovery: which tools are there, and what are their specifications?

Rule 1: the reply to `discover.PING` is a hint, since any tool may send any name. The specification is requested on
`discover.INFO.<tool>`, which only this tool receives, and only this tool may publish on the reply subject.
Rule 2: each round has reply subjects of its own, one for hints and one for each tool, and the server delivers a limited
number of replies to each, none after one that is too large. So a tool that sends thousands of false names or replies
costs little, only until the next round, and takes the place of no other tool's reply.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import orjson
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from contracts.wire import ids, names, subjects
from services.messaging.connection import Bus
from services.messaging.errors import NATS_ERRORS
from services.messaging.nats_patches import inboxes
from services.messaging.nats_patches.headers import FORGED

_MAX_HINTS, _MAX_REPLIES_PER_TOOL = 2000, 1000
"""Replies to `discover.PING`, and to the `discover.INFO` of a tool, that the server delivers in a round."""
_MAX_HINT_BYTES = 16 << 10
MAX_ANNOUNCEMENT_BYTES = 1 << 20
_MAX_HINTED_TOOLS = 500
"""Names of a round that are followed although only a hint says that they exist."""
_MAX_NEW_PER_TOOL = 32
"""Replies of one tool in a round that have to be parsed, as they were never received before."""


class Round:
    """Requests once, and passes on the hints and the replies."""

    def __init__(
        self, bus: Bus, on_hint: Callable[["Round", str], None], on_reply: Callable[["Round", Msg], None]
    ) -> None:
        self._bus = bus
        self._on_hint = on_hint
        self._on_reply = on_reply
        self._instance = ids.new_id()
        self._requested: set[str] = set()
        self._hinted = 0
        self._new: Counter[str] = Counter()
        self._subscriptions: dict[str, Subscription] = {}
        """By subject."""
        self._ending: set[asyncio.Task[None]] = set()

    async def begin(self, known: set[str]) -> None:
        """Request the names of all tools, and the specifications of the known ones."""
        await self._subscribe(subjects.hello(self._instance), self._on_hello, _MAX_HINTS)
        await self._bus.send(subjects.discovery(), reply=subjects.hello(self._instance))
        self._requested |= known
        for tool in known:
            await self.request(tool)

    async def request(self, tool: str) -> None:
        """Request the specification of a tool from all its instances."""
        reply = subjects.answer(tool, self._instance, "info")
        await self._subscribe(reply, self._on_answer, _MAX_REPLIES_PER_TOOL)
        await self._bus.send(subjects.discover_info(tool), reply=reply)

    async def end(self) -> None:
        """Receive no more replies."""
        for subject in list(self._subscriptions):
            await self._end(subject)

    def may_parse(self, tool: str) -> bool:
        """Return whether one more new reply of a tool may be parsed in this round, and count it."""
        self._new[tool] += 1
        return self._new[tool] <= _MAX_NEW_PER_TOOL

    async def _subscribe(self, subject: str, handle: Callable[[Msg], None], limit: int) -> None:
        with suppress(*NATS_ERRORS):
            subscription = self._subscriptions[subject] = await inboxes.subscribe(self._bus.nc, subject, handle)
            await subscription.unsubscribe(limit)

    async def _end(self, subject: str) -> None:
        if subscription := self._subscriptions.pop(subject, None):
            with suppress(*NATS_ERRORS):
                await subscription.unsubscribe()

    def _end_if_large(self, message: Msg, max_bytes: int) -> bool:
        """Have the server deliver nothing more on the subject of a reply that is too large; return whether it is."""
        if is_large := len(message.data) > max_bytes or FORGED in (message.headers or {}):
            ending = asyncio.create_task(self._end(message.subject))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        return is_large

    def _on_hello(self, message: Msg) -> None:
        if self._end_if_large(message, _MAX_HINT_BYTES) or self._hinted == _MAX_HINTED_TOOLS:
            return
        try:
            tool = names.checked_tool(orjson.loads(message.data)["name"])
        except (ValueError, TypeError, KeyError):
            return  # Also the server's 503: no tool is there.
        if tool not in self._requested:
            self._requested.add(tool)
            self._hinted += 1
            self._on_hint(self, tool)

    def _on_answer(self, message: Msg) -> None:
        self._end_if_large(message, MAX_ANNOUNCEMENT_BYTES)
        if message.data or not message.headers:  # Else it is the server's 503: nobody has this name.
            self._on_reply(self, message)
