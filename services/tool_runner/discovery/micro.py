"""Discover tools that announce themselves as NATS micro services, in reply to `$SRV.INFO`.

Rule: each distinct announcement is parsed once, in a thread, because its schemas come from others.
"""

import asyncio
import random
import time
from collections import OrderedDict
from itertools import chain, repeat

import structlog
from nats.aio.msg import Msg

from contracts import subjects
from services.messaging import dead_letters
from services.messaging.connection import Bus
from services.runtime.tasks import cancelled

from .announcements import Announcement, InvalidAnnouncement, content_id, read_announcement

logger = structlog.get_logger(__name__)

_FIRST_PAUSES_S = (0.1, 0.2, 0.4, 0.8)
"""Pauses between requests after a start or reconnect, when tools appear one by one."""
_MAX_MISSED_ROUNDS = 3.5
_MAX_DEAD_LETTERED = 1000
_MAX_CACHED_ANNOUNCEMENTS = 4096
_MAX_REFUSED_TOOLS = 100


class MicroDiscovery:
    """Requests announcements, and forgets tools that have missed a few rounds."""

    def __init__(self, bus: Bus, every_s: float) -> None:
        self.changed = asyncio.Event()
        """Set when there is a new announcement."""
        self._bus = bus
        self._every_s = every_s
        self._seen: dict[tuple[str, str], tuple[Announcement, float]] = {}
        """(tool, instance) -> its announcement and when it was last received."""
        self._refused: dict[str, tuple[str, float]] = {}
        """Tool -> why it cannot be used, and when it was last announced."""
        self._parsed: OrderedDict[str, list[Announcement] | InvalidAnnouncement] = OrderedDict()
        """Parsed announcements, by the id of their content."""
        self._dead_lettered: set[str] = set()
        self._inbox = ""
        self._request_now = asyncio.Event()
        self._requesting: asyncio.Task[None] | None = None

    async def start(self) -> "MicroDiscovery":
        """Start to request announcements."""
        self._inbox = self._bus.nc.new_inbox()
        await self._bus.subscribe(self._inbox, self._on_info)
        self._bus.on_reconnect.append(self._on_reconnect)
        self._requesting = self._bus.tasks.keep("discovery_questions", self._request())
        return self

    async def stop(self) -> None:
        """Stop."""
        await cancelled(self._requesting)

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

    async def _request(self) -> None:
        while True:
            for pause_s in chain(_FIRST_PAUSES_S, repeat(self._every_s)):
                await self._bus.send(subjects.SERVICE_INFO, reply=self._inbox)
                try:
                    # A spread, not a secret.
                    async with asyncio.timeout(pause_s * random.uniform(0.8, 1.2)):  # noqa: S311
                        await self._request_now.wait()
                except TimeoutError:
                    continue
                self._request_now.clear()
                break

    async def _on_reconnect(self) -> None:
        self._request_now.set()

    async def _on_info(self, message: Msg) -> None:
        if message.headers and not message.data:
            return  # 503: no service is running.
        content = content_id(message.data)
        found = self._parsed.get(content)
        if found is None:
            found = self._parsed[content] = await asyncio.to_thread(_parse, message.data)
            if len(self._parsed) > _MAX_CACHED_ANNOUNCEMENTS:
                self._parsed.popitem(last=False)
        if isinstance(found, InvalidAnnouncement):
            await self._refuse(found, message.data, content)
            return
        now = time.monotonic()
        for announced in found:
            key = (announced.spec.name, announced.instance)
            known = self._seen.get(key)
            self._seen[key] = (announced, now)
            if known is None or known[0].digest != announced.digest:
                self.changed.set()

    async def _refuse(self, error: InvalidAnnouncement, data: bytes, content: str) -> None:
        if error.tool is not None and (error.tool in self._refused or len(self._refused) < _MAX_REFUSED_TOOLS):
            is_new = error.tool not in self._refused
            self._refused[error.tool] = (str(error), time.monotonic())
            if is_new:
                logger.warning("tool_refused", tool=error.tool, reason=str(error))
                self.changed.set()
        if content not in self._dead_lettered and len(self._dead_lettered) < _MAX_DEAD_LETTERED:
            self._dead_lettered.add(content)
            await dead_letters.dead_letter_bytes(
                self._bus, subjects.ANNOUNCED, subjects.SERVICE_INFO, data, str(error), f"dead-announced-{content}"
            )


def _parse(data: bytes) -> list[Announcement] | InvalidAnnouncement:
    try:
        return read_announcement(data)
    except InvalidAnnouncement as error:
        return error
