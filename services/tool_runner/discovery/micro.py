"""Discover tools that announce themselves as NATS micro services, in rounds.

Rule 1: the reply to `discover.PING` is a hint, since any tool may send any name. The specification is requested on
`discover.INFO.<tool>`, which only this tool receives, and only this tool may publish on the reply subject. What it says
about another tool is ignored.
Rule 2: each round has reply subjects of its own, one for hints and one for each tool, and the server delivers a limited
number of replies to each, none after one that is too large. So a tool that sends thousands of false names or replies
costs little, only until the next round, and takes the place of no other tool's reply.
Rule 3: in each round the specifications of known tools are requested without a hint.
Rule 4: each distinct announcement is parsed once, in a thread, because its schemas come from others.
Rule 5: a tool that announces ever new or very large specifications costs bounded memory. A parsed one takes up to 20
times its size.
"""

import asyncio
import hashlib
import random
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, repeat

import orjson
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from contracts.wire import names, subjects
from services.messaging import dead_letters, nats_patches
from services.messaging.connection import Bus
from services.messaging.errors import NATS_ERRORS
from services.messaging.nats_patches import FORGED
from services.runtime.tasks import cancelled, is_set_within, start_in

from .announcements import Announcement, InvalidAnnouncement, read_announcement

logger = structlog.get_logger(__name__)

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
        self._instance = names.new_id()
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
            subscription = self._subscriptions[subject] = await nats_patches.subscribe(self._bus.nc, subject, handle)
            await subscription.unsubscribe(limit)

    async def _end(self, subject: str) -> None:
        if subscription := self._subscriptions.pop(subject, None):
            with suppress(*NATS_ERRORS):
                await subscription.unsubscribe()

    def _end_if_large(self, message: Msg, max_bytes: int) -> bool:
        """Have the server deliver nothing more on the subject of a reply that is too large; return whether it is."""
        if is_large := len(message.data) > max_bytes or FORGED in (message.headers or {}):
            start_in(self._ending, self._end(message.subject))
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


_FIRST_PAUSES_S = (0.1, 0.2, 0.4, 0.8)
"""Pauses between rounds after a start or reconnect, when tools appear one by one."""
_MAX_OPEN_ROUNDS = 4
"""Replies to earlier rounds count too: a tool may be slow."""
_MAX_MISSED_ROUNDS = 3.5
_MAX_DEAD_LETTERED = 1000
_MAX_CACHED_BYTES = 8 << 20
"""Of announcements as they were received, whose parsed form is kept."""
_MAX_UNPARSED_PER_TOOL = 32
_MAX_SPECS_PER_TOOL = 8
"""Different specifications that instances of one tool announce at the same time."""
_MAX_REFUSED_TOOLS = 100

_Parsed = list[Announcement] | InvalidAnnouncement


class MicroDiscovery:
    """Requests announcements, and forgets tools that have missed a few rounds."""

    def __init__(self, bus: Bus, every_s: float, changed: asyncio.Event) -> None:
        """`changed` is set when there is a new announcement."""
        self._changed = changed
        self._bus = bus
        self._every_s = every_s
        self._seen: dict[tuple[str, str], tuple[Announcement, float]] = {}
        """(tool, instance) -> its announcement and when it was last received."""
        self._refused: dict[str, tuple[str, float]] = {}
        """Tool -> why it cannot be used, and when it was last announced."""
        self._ended: set[str] = set()
        """Tools whose last instance has said that it ends."""
        self._parsed: OrderedDict[str, tuple[_Parsed, int]] = OrderedDict()
        """Parsed announcements with the size of their content, by its id."""
        self._cached_bytes = 0
        self._dead_lettered: set[str] = set()
        self._logged: set[str] = set()
        """Tools that have announced another tool, which is logged once."""
        self._hints: asyncio.Queue[tuple[Round, str]] = asyncio.Queue()
        self._unparsed: asyncio.Queue[tuple[str, str, bytes]] = asyncio.Queue()
        """Tool, id of the content, and content."""
        self._unparsed_of: Counter[str] = Counter()
        self._request_now = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> "MicroDiscovery":
        """Start to request announcements."""

        async def follow_hints() -> None:
            while True:
                of, tool = await self._hints.get()
                await of.request(tool)

        self._bus.on_reconnect.append(self._request_now.set)
        self._tasks = [
            self._bus.tasks.keep("discovery_rounds", self._request),
            self._bus.tasks.keep("discovery_hints", follow_hints),
            self._bus.tasks.keep("discovery_parser", self._parse_new),
        ]
        return self

    async def stop(self) -> None:
        """Stop."""
        await cancelled(*self._tasks)

    def announcements(self) -> list[Announcement]:
        """Return the recent announcements of all instances."""
        oldest = time.monotonic() - _MAX_MISSED_ROUNDS * self._every_s
        self._seen = {key: seen for key, seen in self._seen.items() if seen[1] >= oldest}
        return [announced for announced, _ in self._seen.values()]

    def refused(self) -> dict[str, str]:
        """Return why tools that were announced recently cannot be used."""
        oldest = time.monotonic() - _MAX_MISSED_ROUNDS * self._every_s
        self._refused = {name: refused for name, refused in self._refused.items() if refused[1] >= oldest}
        return {name: reason for name, (reason, _) in self._refused.items()}

    def ended(self) -> set[str]:
        """Return the tools whose last instance has said since the last call that it ends."""
        ended, self._ended = self._ended, set()
        return ended

    async def tell_offered(self, tool: str, instance: str) -> None:
        """Tell an instance that its tool is in the catalogue: it takes a question of its own for that."""
        with suppress(names.InvalidName):
            reply = subjects.answer(tool, names.new_id(), "offered")  # Nobody listens there.
            await self._bus.send(subjects.discover_ping(tool, instance), reply=reply)

    async def _request(self) -> None:
        rounds: deque[Round] = deque()
        while True:
            for pause_s in chain(_FIRST_PAUSES_S, repeat(self._every_s)):
                rounds.append(Round(self._bus, lambda of, tool: self._hints.put_nowait((of, tool)), self._on_reply))
                await rounds[-1].begin({tool for tool, _ in self._seen})
                if len(rounds) > _MAX_OPEN_ROUNDS:
                    await rounds.popleft().end()
                # A spread, not a secret.
                if await is_set_within(self._request_now, pause_s * random.uniform(0.8, 1.2)):  # noqa: S311
                    self._request_now.clear()
                    break

    def _on_reply(self, of: Round, message: Msg) -> None:
        tool, content = subjects.answering_tool(message.subject), hashlib.sha256(message.data).hexdigest()[:32]
        if len(message.data) > MAX_ANNOUNCEMENT_BYTES:
            self._refuse(tool, f"its announcement has more than {MAX_ANNOUNCEMENT_BYTES:,} bytes")
        elif content in self._parsed:
            self._note(tool, self._parsed[content][0])
        elif of.may_parse(tool) and self._unparsed_of[tool] < _MAX_UNPARSED_PER_TOOL:
            self._unparsed_of[tool] += 1
            self._unparsed.put_nowait((tool, content, message.data))

    async def _parse_new(self) -> None:
        while True:
            tool, content, data = await self._unparsed.get()
            self._unparsed_of.subtract([tool])
            self._unparsed_of += Counter()  # Removes names of which nothing waits.
            if content in self._parsed:
                found, _ = self._parsed[content]
            else:
                found = await asyncio.to_thread(_parse, data)
                self._parsed[content] = (found, len(data))
                self._cached_bytes += len(data)
                while self._cached_bytes > _MAX_CACHED_BYTES:
                    _, (_, oldest_size) = self._parsed.popitem(last=False)
                    self._cached_bytes -= oldest_size
            self._note(tool, found)
            if found == []:
                self._end(tool, data)
            if (
                isinstance(found, InvalidAnnouncement)
                and content not in self._dead_lettered
                and len(self._dead_lettered) < _MAX_DEAD_LETTERED
            ):
                self._dead_lettered.add(content)
                place = (subjects.ANNOUNCED, subjects.discover_info(tool))
                message_id = f"dead-announced-{content}"
                await dead_letters.dead_letter_bytes(self._bus, *place, data, str(found), message_id)

    def _note(self, tool: str, found: _Parsed) -> None:
        if isinstance(found, InvalidAnnouncement):
            if found.tool == tool:
                self._refuse(tool, str(found))
            return
        now = time.monotonic()
        for announced in found:
            if announced.spec.name != tool:
                if tool not in self._logged and len(self._logged) < _MAX_REFUSED_TOOLS:
                    self._logged.add(tool)
                    reason = "a micro service announces the tool that has its own name, and no other"
                    other = announced.spec.name
                    logger.warning("announcement_of_another_tool_ignored", service=tool, tool=other, reason=reason)
                continue
            key = (tool, announced.instance)
            known = self._seen.get(key)
            if known is None or known[0].digest != announced.digest:
                digests = {one.digest for one in self.announcements() if one.spec.name == tool}
                if announced.digest not in digests and len(digests) >= _MAX_SPECS_PER_TOOL:
                    continue
                self._changed.set()
            self._seen[key] = (announced, now)

    def _end(self, tool: str, data: bytes) -> None:
        """Forget an instance that has described itself without endpoints: it ends."""
        if self._seen.pop((tool, str(orjson.loads(data).get("id"))), None) is not None:
            if all(name != tool for name, _ in self._seen):
                self._ended.add(tool)
            self._changed.set()

    def _refuse(self, tool: str, reason: str) -> None:
        is_new = tool not in self._refused
        if is_new and len(self._refused) == _MAX_REFUSED_TOOLS:
            return
        self._refused[tool] = (reason, time.monotonic())
        if is_new:
            logger.warning("tool_refused", tool=tool, reason=reason)
            self._changed.set()


def _parse(data: bytes) -> _Parsed:
    try:
        return read_announcement(data)
    except InvalidAnnouncement as error:
        # Without its traceback, which would keep the specification in memory.
        return InvalidAnnouncement(str(error), error.tool)
