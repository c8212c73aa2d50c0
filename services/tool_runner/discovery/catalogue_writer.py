"""Write the tools that are present to the catalogue.

Rule 1: a new tool gets its consumer first and its catalogue entry last, so every tool in the catalogue can be called.
Rule 2: `spec.<digest>` is written before `tool.<name>` and is never removed, since runs pin it.
Rule 3: the entry of a tool without a recent announcement is no longer refreshed, and its key expires. If the server has
lost the expiry, as after a kill, the key is deleted.
Rule 4: an announcement that cannot be used is listed under `refused.<name>` with the reason, as long as it is repeated.
Rule 5: all tool runners do this at the same time and reach the same result, so there is no leader.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import structlog

from contracts import keys
from contracts.tools import RefusedTool
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket
from services.runtime.tasks import cancelled
from services.shared.tool_catalogue import read_entries

from .announcements import Announcement, choose
from .micro import MicroDiscovery

logger = structlog.get_logger(__name__)

TTL_S = 15
REFRESH_INTERVAL_S = 5.0

OnTool = Callable[[Announcement], Awaitable[None]]
"""Called once per new specification before it is published. Ensures that calls of the tool are taken."""


class CatalogueWriter:
    """Writes what is announced or declared, and refreshes it. `declared`: the tools file."""

    def __init__(self, bus: Bus, discovery: MicroDiscovery, declared: list[Announcement], on_tool: OnTool) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.CATALOGUE_BUCKET, attempts=1)
        self._discovery = discovery
        self._declared = declared
        self._on_tool = on_tool
        self._published: dict[str, tuple[str, float]] = {}
        """Tool -> digest in the catalogue and when it was last written."""
        self._published_refused: dict[str, tuple[str, float]] = {}
        """Refused tool -> reason in the catalogue and when it was last written."""
        self._stored_specs: set[str] = set()
        self._differing: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._problem: str | None = None

    def start(self) -> "CatalogueWriter":
        """Start to write."""
        self._bus.on_reconnect.append(self._on_reconnect)
        self._tasks = [
            self._bus.tasks.keep("discovery_announcements", self._write()),
            self._bus.tasks.keep("discovery_expiry", self._expire()),
        ]
        return self

    async def stop(self) -> None:
        """Stop. Other tool runners maintain the catalogue."""
        await cancelled(*self._tasks)

    def problem(self) -> str | None:
        """Return why the catalogue could not be written; None when it was."""
        return self._problem

    async def _on_reconnect(self) -> None:
        # Keys may have expired, or the server may be another one.
        self._published.clear()
        self._published_refused.clear()
        self._stored_specs.clear()
        self._discovery.changed.set()

    def _present(self) -> dict[str, Announcement]:
        """Return the announcement to use for each present tool."""
        candidates: dict[str, list[Announcement]] = {}
        for announced in [*self._declared, *self._discovery.announcements()]:
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
            self._discovery.changed.clear()
            problem = None
            present = self._present()
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
                    await self._discovery.changed.wait()
            except TimeoutError:
                continue

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_INTERVAL_S)
            for pattern in (keys.ALL_TOOLS, keys.ALL_REFUSED, keys.ALL_MODELS):
                try:
                    _, expired = await read_entries(self._bus, pattern)
                    for key, entry in expired.items():
                        await self._bucket.purge(key, upto=entry.sequence)  # A newer one stays.
                        logger.info("entry_expired", key=key)
                except BusError as error:
                    logger.debug("expired_not_removed", reason=str(error))

    async def _list_refused(self) -> None:
        refused, now = self._discovery.refused(), time.monotonic()
        self._published_refused = {name: at for name, at in self._published_refused.items() if name in refused}
        for name, reason in refused.items():
            written_reason, at = self._published_refused.get(name, ("", 0.0))
            if written_reason == reason and now - at < REFRESH_INTERVAL_S:
                continue
            with contextlib.suppress(BusError):
                await self._bucket.put(keys.refused_key(name), RefusedTool(name=name, reason=reason), ttl_s=TTL_S)
                self._published_refused[name] = (reason, now)

    async def _announce(self, name: str, announced: Announcement) -> None:
        digest, at = self._published.get(name, ("", 0.0))
        now = time.monotonic()
        if digest == announced.digest and now - at < REFRESH_INTERVAL_S:
            return
        if digest != announced.digest:
            await self._on_tool(announced)
        if announced.digest not in self._stored_specs:
            await self._bucket.put(keys.spec_key(announced.digest), announced.spec)
            self._stored_specs.add(announced.digest)
        await self._bucket.put(keys.tool_key(name), announced.spec, ttl_s=TTL_S)
        self._published[name] = (announced.digest, now)
        if digest != announced.digest:
            logger.info("tool_announced", tool=name, version=announced.version, digest=announced.digest)
