"""The present tools, and each specification that a run has pinned, read from the KV bucket `catalogue`.

Rule 1: a key `tool.<name>` lives as long as it is refreshed; `spec.<digest>` stays, since runs pin it.
Rule 2: a live message is only a hint to read the bucket, since the server may have rejected it.
Rule 3: shortly after a reconnect no tool is removed: tools reconnect too, and their keys may have expired meanwhile.
Nor is one removed while NATS does not store, since no key can be refreshed then: runs that continue after a full disk
keep their tools.
Rule 4: an entry expires by its time to live, even if the server has lost the expiry, as after a kill.

`read` calls a tool that changes nothing, for no run: for an answer of the gateway, or for what a page shows.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import TypeVar

import structlog
from pydantic import ValidationError

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import LiveTool, ReadRequested, RefusedTool, ToolSpec
from contracts.wire import keys, subjects
from contracts.wire.base import Message
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket, Entry
from services.messaging.nats_connection import Subscription
from services.runtime.tasks import cancelled, is_set_within

logger = structlog.get_logger(__name__)
T = TypeVar("T", bound=Message)

READ_WAIT_S = 12.0
"""A little longer than a tool runner gives a tool."""


async def read(bus: Bus, asked: ReadRequested, wait_s: float = READ_WAIT_S) -> CallFinished:
    """Return what came of a call. Raises Unavailable if no tool runner answers."""
    message = await bus.request(subjects.tool_read(), asked, wait_s)
    return CallFinished.model_validate_json(message.data)


_READ_BACK_S = 3.0
_SETTLING_S = 10.0
_MAX_PINNED_SPECS = 4096
_READ_NOW_S = 1.0
_RESTART_S = 60.0
"""A tool that restarts is back within this time."""
_EXPIRY_SLACK_S = 5.0


class Catalogue:
    """A live view of the catalogue. It only reads; the tool runner writes."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.CATALOGUE_BUCKET)
        self.version = 0
        """Grows with every change of `live()`."""
        self._next_version = asyncio.Event()
        self._live: dict[str, ToolSpec] = {}
        self._gone_at: dict[str, float] = {}
        """Tool that has left `live()` -> when, by the monotonic clock."""
        self._raw: dict[str, bytes] = {}
        self.pinned: dict[str, ToolSpec] = {}
        """Digest -> a specification that was read before."""
        self._changed = asyncio.Event()
        self._subscription: Subscription
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> "Catalogue":
        """Return once the present tools are known; follow changes from then on."""

        def on_change(key: str, data: bytes) -> None:
            # A refresh repeats the known value; anything else may be a change.
            if self._raw.get(key) != data:
                self._changed.set()

        self._subscription = await self._bucket.watch(keys.live_tool.all, on_change, reads_back=True)
        self._bus.on_reconnect.append(self._changed.set)
        await self._bus.until_answered(lambda: self._read_back(forget=True))
        self._watcher = self._bus.tasks.keep("catalogue", self._watch)
        return self

    async def stop(self) -> None:
        """Stop following changes. Known tools stay readable."""
        await cancelled(self._watcher)
        if self._changed.set in self._bus.on_reconnect:
            self._bus.on_reconnect.remove(self._changed.set)
        await self._subscription.stop()

    def live(self) -> dict[str, ToolSpec]:
        """Return the present tools by name."""
        return dict(self._live)

    def may_return(self, absent: Iterable[str]) -> bool:
        """Whether one of these absent tools may be restarting. Shortly after a connect any may: which were there?"""
        recent = time.monotonic() - _RESTART_S
        return any(max(self._bus.up_since, self._gone_at.get(name, 0.0)) > recent for name in absent)

    async def change(self) -> None:
        """Return after the next change of `live()`."""
        await self._next_version.wait()

    async def spec(self, digest: str) -> ToolSpec | None:
        """Return the specification that a run has pinned, or None if it was never announced.

        Waits while NATS is unavailable.
        """
        known = self.pinned.get(digest)
        if known is not None:
            return known
        entry = await self._bucket.get(keys.tool_spec(digest))
        if not entry.data:
            return None
        spec = _parsed(digest, entry.data)
        if spec is not None:
            if len(self.pinned) >= _MAX_PINNED_SPECS:
                self.pinned.pop(next(iter(self.pinned)))
            self.pinned[digest] = spec
        return spec

    async def _watch(self) -> None:
        while True:
            await is_set_within(self._changed, _READ_BACK_S)
            self._changed.clear()
            try:
                settled = time.monotonic() - self._bus.up_since > _SETTLING_S
                await self._read_back(forget=settled and not self._bus.storage.problems())
            except BusError:
                self._changed.set()
                await self._bus.retry_pause()

    async def _read_back(self, *, forget: bool) -> None:
        entries, _ = await read_entries(self._bus, keys.live_tool.all)
        found = {key: entry.data for key, entry in entries.items()}
        raw = found if forget else {**self._raw, **found}
        if raw == self._raw:
            return
        changed: dict[str, ToolSpec] = {}
        for key, data in raw.items():
            if self._raw.get(key) != data and (spec := _parsed(key, data)) is not None:
                changed |= {key: spec} if keys.live_tool(spec.name) == key else {}
        kept = {keys.live_tool(name): spec for name, spec in self._live.items()}
        # An entry that cannot be parsed does not remove the known tool.
        specs = {key: changed.get(key) or kept.get(key) for key in raw}
        self._raw = raw
        now, before = time.monotonic(), self._live
        self._live = {spec.name: spec for spec in specs.values() if spec is not None}
        gone_at = {**self._gone_at, **dict.fromkeys(before.keys() - self._live.keys(), now)}
        self._gone_at = {name: at for name, at in gone_at.items() if now - at < _RESTART_S}
        self.version += 1
        reached, self._next_version = self._next_version, asyncio.Event()
        reached.set()
        logger.debug("catalogue_changed", tools=sorted(self._live), version=self.version)


async def read_entries(bus: Bus, pattern: str) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """Return the entries whose keys match a pattern, by key: the valid ones, and those that should have expired.

    Raises BusError.
    """
    entries = await Bucket(bus, keys.CATALOGUE_BUCKET).latest(pattern)
    now = unix_ms() / 1000
    # The server removes expired entries late, and clocks of a cluster differ.
    expired = {entry.key: entry for entry in entries if now > entry.expires_at + _EXPIRY_SLACK_S}
    return {entry.key: entry for entry in entries if entry.key not in expired}, expired


async def refused_tools(bus: Bus) -> list[RefusedTool]:
    """Return the refused tools by name, as the catalogue has them now; none while NATS is unavailable."""
    return sorted(await _read_now(bus, keys.refused_tool.all, RefusedTool), key=lambda tool: tool.name)


async def instances(bus: Bus) -> dict[str, int]:
    """Return how many processes announce each tool; none while NATS is unavailable."""
    return {tool.name: tool.instances for tool in await _read_now(bus, keys.live_tool.all, LiveTool)}


async def _read_now(bus: Bus, pattern: str, kind: type[T]) -> list[T]:
    with contextlib.suppress(BusError, TimeoutError):
        async with asyncio.timeout(_READ_NOW_S):
            entries, _ = await read_entries(bus, pattern)
            return [found for entry in entries.values() if (found := entry.parsed(kind)) is not None]
    return []


def _parsed(key: str, data: bytes) -> ToolSpec | None:
    try:
        return ToolSpec.model_validate_json(data)
    except ValidationError as error:
        logger.warning("catalogue_entry_invalid", key=key, reason=str(error)[:300])
        return None
