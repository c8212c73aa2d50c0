"""Write the tools that are present to the catalogue.

Rule 1: a new tool gets its consumer first and its catalogue entry last, so every tool in the catalogue can be called.
Rule 2: `spec.<digest>` is written once, before `tool.<name>`, and is never removed, since runs pin it. A digest is so
short that an author could prepare two specifications with the same one: the first that is stored counts.
Rule 3: the entry of a tool without a recent announcement is no longer refreshed, and its key expires. If the server has
lost the expiry, as after a kill, the key is deleted. It is deleted at once when the last instance says that it ends.
Rule 4: an announcement that cannot be used or is not accepted is listed under `refused.<name>` with the reason, as long
as it is repeated.
Rule 5: all tool runners do this at the same time and reach the same result, so there is no leader.
Rule 6: however often announcements change, there are at most a few writes per tool and second.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256

import structlog

from contracts.tools.messages import LiveTool, RefusedTool
from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Outdated
from services.messaging.kv import Bucket
from services.runtime.tasks import cancelled, is_set_within
from services.shared.tools.catalogue import read_entries

from .acceptance import Acceptance, Candidates
from .announcements import Announcement, Discovery, choose

logger = structlog.get_logger(__name__)

TTL_S = 15
REFRESH_INTERVAL_S = 5.0
_MIN_PASS_INTERVAL_S = 0.1
_MIN_REFUSED_INTERVAL_S = 1.0
"""Between two writes of one tool's entry under `refused`."""
_MAX_STORED_SPECS = 4096

OnTool = Callable[[Announcement], Awaitable[None]]
"""Called once per new specification before it is published. Ensures that calls of the tool are taken."""


class CatalogueWriter:
    """Writes what is announced or declared, and refreshes it.

    `changed` is set when there is something new. `declared`: the tools file. `trust_tools`: offer specifications that
    nobody has accepted.
    """

    def __init__(
        self,
        bus: Bus,
        discoveries: Sequence[Discovery],
        changed: asyncio.Event,
        declared: list[Announcement],
        on_tool: OnTool,
        *,
        trust_tools: bool,
    ) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.CATALOGUE_BUCKET, attempts=1)
        self._discoveries = discoveries
        self._changed = changed
        self._declared = declared
        self._acceptance = Acceptance(bus, declared, changed.set, trust_all=trust_tools)
        self._on_tool = on_tool
        self._published: dict[str, tuple[str, int, float]] = {}
        """Tool -> digest and instances in the catalogue, and when they were last written."""
        self._published_refused: dict[str, tuple[RefusedTool, float]] = {}
        """Refused tool -> its entry in the catalogue and when it was last written."""
        self._stored_specs: dict[str, bytes] = {}
        """Digest -> SHA-256 of the specification as it is stored."""
        self._told: set[tuple[str, str]] = set()
        """(tool, instance) that has been told that it is offered."""
        self._differing: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._problem: str | None = None

    async def start(self) -> "CatalogueWriter":
        """Start to write."""
        await self._acceptance.start()

        async def on_reconnect() -> None:
            # Keys may have expired, or the server may be another one.
            self._published.clear()
            self._published_refused.clear()
            self._stored_specs.clear()
            self._acceptance.forget()
            self._changed.set()

        self._bus.on_reconnect.append(on_reconnect)
        self._tasks = [
            self._bus.tasks.keep("discovery_announcements", self._write),
            self._bus.tasks.keep("discovery_expiry", self._expire),
        ]
        return self

    async def stop(self) -> None:
        """Stop. Other tool runners maintain the catalogue."""
        await cancelled(*self._tasks)
        await self._acceptance.stop()

    def problem(self) -> str | None:
        """Return why the catalogue could not be written; None when it was."""
        return self._problem

    async def _write(self) -> None:
        while True:
            self._changed.clear()
            try:
                self._problem = await self._write_all()
            except BusError as error:
                self._problem = f"acceptance of tools: {error}"
            await asyncio.sleep(_MIN_PASS_INTERVAL_S)
            await is_set_within(self._changed, 1.0)

    async def _write_all(self) -> str | None:
        """Write what has changed and refresh the rest; return why a tool could not be written. Raises BusError."""
        problem = None
        candidates: Candidates = {}
        for announced in [*self._declared, *(one for each in self._discoveries for one in each.announcements())]:
            candidates.setdefault(announced.spec.name, []).append(announced)
        offered, waiting = await self._acceptance.divide(candidates)
        # A tool that returns later is treated as new: its consumer may be gone.
        recent = time.monotonic() - REFRESH_INTERVAL_S
        self._published = {
            name: written for name, written in self._published.items() if name in offered or written[2] > recent
        }
        for name in {name for each in self._discoveries for name in each.ended()} - offered.keys():
            await self._bucket.delete(keys.live_tool(name))
            self._published.pop(name, None)
        self._told &= {(name, one.instance) for name, several in offered.items() for one in several}
        for name, several in offered.items():
            if len({one.digest for one in several}) > 1 and name not in self._differing:
                self._differing.add(name)
                logger.warning(
                    "tool_specifications_differ", tool=name, versions=sorted({one.version for one in several})
                )
            try:
                await self._announce(name, choose(several), len({one.instance for one in several} - {""}))
                for one in several:
                    if (name, one.instance) not in self._told:
                        self._told.add((name, one.instance))
                        await asyncio.gather(*(each.tell_offered(name, one.instance) for each in self._discoveries))
            except BusError as error:
                problem = f"{name}: {error}"
                logger.warning("tool_not_announced", tool=name, reason=str(error))
        invalid = {name: reason for each in self._discoveries for name, reason in each.refused().items()}
        await self._list_refused({name: RefusedTool(name=name, reason=why) for name, why in invalid.items()} | waiting)
        return problem

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_INTERVAL_S)
            for pattern in (keys.live_tool.all, keys.refused_tool.all, keys.model_profile.all):
                try:
                    _, expired = await read_entries(self._bus, pattern)
                    for key, entry in expired.items():
                        await self._bucket.purge(key, upto=entry.sequence)  # A newer one stays.
                        logger.info("entry_expired", key=key)
                except BusError as error:
                    logger.debug("expired_not_removed", reason=str(error))

    async def _list_refused(self, refused: dict[str, RefusedTool]) -> None:
        now = time.monotonic()
        for name in refused.keys() | self._published_refused.keys():
            entry, (written, at) = refused.get(name), self._published_refused.get(name, (None, float("-inf")))
            if now - at < (REFRESH_INTERVAL_S if written == entry else _MIN_REFUSED_INTERVAL_S):
                continue
            with contextlib.suppress(BusError):
                if entry is not None:
                    await self._bucket.put(keys.refused_tool(name), entry, ttl_s=TTL_S)
                    self._published_refused[name] = (entry, now)
                else:
                    await self._bucket.delete(keys.refused_tool(name))
                    del self._published_refused[name]

    async def _announce(self, name: str, announced: Announcement, instances: int) -> None:
        digest, known, at = self._published.get(name, ("", 0, 0.0))
        now = time.monotonic()
        if (digest, known) == (announced.digest, instances) and now - at < REFRESH_INTERVAL_S:
            return
        spec = announced.spec.model_dump_json().encode()
        is_stored = await self._store_once(announced.digest, spec)
        if is_stored and digest != announced.digest:
            await self._on_tool(announced)
        if is_stored:
            live = LiveTool(**announced.spec.model_dump(), instances=instances)
            await self._bucket.put(keys.live_tool(name), live, ttl_s=TTL_S)
        self._published[name] = (announced.digest, instances, now)
        if digest == announced.digest:
            return
        if is_stored:
            logger.info("tool_announced", tool=name, version=announced.version, digest=announced.digest)
        else:
            logger.error("tool_digest_belongs_to_another_specification", tool=name, digest=announced.digest)

    async def _store_once(self, digest: str, spec: bytes) -> bool:
        """Store a specification, and return whether it is the one that is stored under its digest."""
        if digest not in self._stored_specs:
            if len(self._stored_specs) >= _MAX_STORED_SPECS:
                self._stored_specs.clear()
            key = keys.tool_spec(digest)
            stored = await self._bucket.get(key)
            if not stored.data:
                with contextlib.suppress(Outdated):  # Another tool runner was first.
                    await self._bucket.update(key, spec, revision=stored.sequence)
                stored = await self._bucket.get(key)
            self._stored_specs[digest] = sha256(stored.data).digest()
        return self._stored_specs[digest] == sha256(spec).digest()
