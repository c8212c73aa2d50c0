"""Discover tools, and maintain the catalogue.

Rule 1: a new tool gets its consumer first and its catalogue entry last, so every tool in the catalogue can be called.
Rule 2: `spec.<digest>` is written before `tool.<name>` and is never removed, since runs pin it.
Rule 3: the entry of a tool without a recent announcement is no longer refreshed, and its key expires. If the server has
lost the expiry, as after a kill, the key is deleted.
Rule 4: an announcement that cannot be used is listed under `refused.<name>` with the reason, as long as it is repeated.
Rule 5: each distinct announcement is parsed once, in a thread, because its schemas come from others.
Rule 6: all tool runners do this at the same time and reach the same result, so there is no leader.
"""

import asyncio
import contextlib
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from itertools import chain, repeat

import structlog
from nats.aio.msg import Msg

from contracts import keys
from contracts.tools import RefusedTool
from services.messaging import dead_letters
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket
from services.runtime.tasks import cancelled
from services.shared.tool_catalogue import read_entries
from services.tool_runner.settings import ToolRunnerSettings
from services.tool_runner.tool_specs import Announcement, InvalidAnnouncement, choose, content_id, read_announcement

logger = structlog.get_logger(__name__)

TTL_S = 15
REFRESH_S = 5.0
_FIRST_PAUSES_S = (0.1, 0.2, 0.4, 0.8)
"""Pauses between questions after a start or reconnect, when tools appear one by one."""
_MISSED_ROUNDS = 3.5
_MAX_DEAD_LETTERED = 1000
_MAX_CACHED_ANNOUNCEMENTS = 4096
_MAX_REFUSED_TOOLS = 100
_INFO_SUBJECT = "$SRV.INFO"

OnTool = Callable[[Announcement], Awaitable[None]]
"""Called once per new specification before it is published. Ensures that calls of the tool are taken."""


class Discovery:
    """Asks for announcements, and writes them to the catalogue."""

    def __init__(self, bus: Bus, settings: ToolRunnerSettings, on_tool: OnTool, declared: list[Announcement]) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.CATALOGUE_BUCKET, attempts=1)
        self._every_s = settings.discover_s
        self._on_tool = on_tool
        self._declared = declared
        self._seen: dict[tuple[str, str], tuple[Announcement, float]] = {}
        """(tool, instance) -> its announcement and when it was last received."""
        self._published: dict[str, tuple[str, float]] = {}
        """Tool -> digest in the catalogue and when it was last written."""
        self._published_refused: dict[str, tuple[str, float]] = {}
        """Refused tool -> reason in the catalogue and when it was last written."""
        self._kept_specs: set[str] = set()
        self._refused: dict[str, tuple[str, float]] = {}
        """Tool -> why it cannot be used, and when it was last announced."""
        self._parsed: OrderedDict[str, list[Announcement] | InvalidAnnouncement] = OrderedDict()
        """Parsed announcements, by the id of their content."""
        self._dead_lettered: set[str] = set()
        self._differing: set[str] = set()
        self._inbox = ""
        self._ask_now = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._problem: str | None = None

    async def start(self) -> "Discovery":
        """Start to ask for announcements."""
        self._inbox = self._bus.nc.new_inbox()
        await self._bus.subscribe(self._inbox, self._on_info)
        self._bus.on_reconnect.append(self._on_reconnect)
        self._tasks = [
            self._bus.tasks.keep("discovery_questions", self._ask()),
            self._bus.tasks.keep("discovery_announcements", self._write()),
            self._bus.tasks.keep("discovery_expiry", self._expire()),
        ]
        return self

    async def stop(self) -> None:
        """Stop asking. Other tool runners maintain the catalogue."""
        await cancelled(*self._tasks)

    def problem(self) -> str | None:
        """Return why the catalogue could not be written; None when it was."""
        return self._problem

    async def _ask(self) -> None:
        while True:
            for pause_s in chain(_FIRST_PAUSES_S, repeat(self._every_s)):
                await self._bus.tell(_INFO_SUBJECT, reply=self._inbox)
                try:
                    async with asyncio.timeout(pause_s * random.uniform(0.8, 1.2)):  # noqa: S311, a spread, not a secret
                        await self._ask_now.wait()
                except TimeoutError:
                    continue
                self._ask_now.clear()
                break

    async def _on_reconnect(self) -> None:
        # Keys may have expired, or the server may be another one.
        self._published.clear()
        self._published_refused.clear()
        self._kept_specs.clear()
        self._ask_now.set()
        self._changed.set()

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
                self._changed.set()

    async def _refuse(self, error: InvalidAnnouncement, data: bytes, content: str) -> None:
        if error.tool is not None and (error.tool in self._refused or len(self._refused) < _MAX_REFUSED_TOOLS):
            is_new = error.tool not in self._refused
            self._refused[error.tool] = (str(error), time.monotonic())
            if is_new:
                logger.warning("tool_refused", tool=error.tool, reason=str(error))
                self._changed.set()
        if content not in self._dead_lettered and len(self._dead_lettered) < _MAX_DEAD_LETTERED:
            self._dead_lettered.add(content)
            await dead_letters.dead_letter_bytes(
                self._bus, "ANNOUNCED", _INFO_SUBJECT, data, str(error), f"dead-announced-{content}"
            )

    def _oldest_heard(self) -> float:
        return time.monotonic() - _MISSED_ROUNDS * self._every_s

    def present(self) -> dict[str, Announcement]:
        """Return the announcement to use for each present tool."""
        oldest = self._oldest_heard()
        self._seen = {key: seen for key, seen in self._seen.items() if seen[1] >= oldest}
        candidates: dict[str, list[Announcement]] = {}
        for announced in [*self._declared, *(seen[0] for seen in self._seen.values())]:
            candidates.setdefault(announced.spec.name, []).append(announced)
        for name, several in candidates.items():
            if len({one.digest for one in several}) > 1 and name not in self._differing:
                self._differing.add(name)
                logger.warning(
                    "tool_specifications_differ", tool=name, versions=sorted({one.version for one in several})
                )
        return {name: choose(several) for name, several in candidates.items()}

    async def _write(self) -> None:
        while True:
            self._changed.clear()
            problem = None
            present = self.present()
            # A tool that returns is treated as new: its consumer may be gone.
            self._published = {name: written for name, written in self._published.items() if name in present}
            for name, announced in present.items():
                try:
                    await self._announce(name, announced)
                except BusError as error:
                    problem = f"{name}: {error}"
                    logger.warning("tool_not_announced", tool=name, reason=str(error))
            self._problem = problem
            await self._list_refused()
            try:
                async with asyncio.timeout(1.0):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            for pattern in (keys.ALL_TOOLS, keys.ALL_REFUSED, keys.ALL_MODELS):
                try:
                    _, expired = await read_entries(self._bus, pattern)
                    for key, entry in expired.items():
                        await self._bucket.purge(key, upto=entry.sequence)  # A newer one stays.
                        logger.info("entry_expired", key=key)
                except BusError as error:
                    logger.debug("expired_not_removed", reason=str(error))

    async def _list_refused(self) -> None:
        oldest = self._oldest_heard()
        self._refused = {name: refused for name, refused in self._refused.items() if refused[1] >= oldest}
        for name, (reason, _) in self._refused.items():
            written_reason, at = self._published_refused.get(name, ("", 0.0))
            if written_reason == reason and time.monotonic() - at < REFRESH_S:
                continue
            with contextlib.suppress(BusError):
                await self._bucket.put(keys.refused_key(name), RefusedTool(name=name, reason=reason), ttl_s=TTL_S)
                self._published_refused[name] = (reason, time.monotonic())
        self._published_refused = {
            name: written for name, written in self._published_refused.items() if name in self._refused
        }

    async def _announce(self, name: str, announced: Announcement) -> None:
        digest, at = self._published.get(name, ("", 0.0))
        now = time.monotonic()
        if digest == announced.digest and now - at < REFRESH_S:
            return
        if digest != announced.digest:
            await self._on_tool(announced)
        if announced.digest not in self._kept_specs:
            await self._bucket.put(keys.spec_key(announced.digest), announced.spec)
            self._kept_specs.add(announced.digest)
        await self._bucket.put(keys.tool_key(name), announced.spec, ttl_s=TTL_S)
        self._published[name] = (announced.digest, now)
        if digest != announced.digest:
            logger.info("tool_announced", tool=name, version=announced.version, digest=announced.digest)


def _parse(data: bytes) -> list[Announcement] | InvalidAnnouncement:
    try:
        return read_announcement(data)
    except InvalidAnnouncement as error:
        return error
