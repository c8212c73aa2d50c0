"""Write the tools that are present to the catalogue, if their specifications may be offered.

Rule 1: a new tool gets its consumer first and its catalogue entry last, so every tool in the catalogue can be called.
Rule 2: `spec.<digest>` is written once, before `tool.<name>`, and is never removed, since runs pin it. A digest is so
short that an author could prepare two specifications with the same one: the first that is stored counts.
Rule 3: the entry of a tool without a recent announcement is no longer refreshed, and its key expires. If the server has
lost the expiry, as after a kill, the key is deleted. It is deleted at once when the last instance says that it ends.
Rule 4: an announcement that cannot be used or is not accepted is listed under `refused.<name>` with the reason, as long
as it is repeated.
Rule 5: all tool runners do this at the same time and reach the same result, so there is no leader.
Rule 6: however often announcements change, there are at most a few writes per tool and second.

Specifications that may be offered are the first one of a tool that is seen, and those that an operator has accepted.

Rule 7: the first one is accepted with a guarded write, so one of several tool runners decides. What the tools file
declares counts as the first one of its tool.
Rule 8: any other specification waits for `runwire tools accept`. Of one that waits, only its digest is stored.
Rule 9: an entry that cannot be parsed accepts nothing.
Rule 10: a tool that announces ever new specifications costs bounded memory, reads, writes and lines of the log.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256

import structlog

from contracts.tools.messages import AcceptedSpecs, LiveTool, RefusedTool, ToolSpec
from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Outdated
from services.messaging.kv import Bucket, Entry
from services.messaging.nats_connection import Subscription
from services.runtime.tasks import cancelled, is_set_within
from services.shared.tools.catalogue import read_entries

from .announcements import Announcement, Discovery, choose

logger = structlog.get_logger(__name__)

Candidates = dict[str, list[Announcement]]
"""Tool -> what its instances and the tools file announce."""

_REREAD_INTERVAL_S = 5.0
_MAX_WAITING_TOOLS = 100
_MAX_WAITING_DIGESTS = 8
_MAX_LOGGED_TOOLS = 1000
TTL_S = 15
REFRESH_INTERVAL_S = 5.0
_MIN_PASS_INTERVAL_S = 0.1
_MIN_REFUSED_INTERVAL_S = 1.0
"""Between two writes of one tool's entry under `refused`."""
_MAX_STORED_SPECS = 4096
OnTool = Callable[[Announcement], Awaitable[None]]
"""Called once per new specification before it is published. Ensures that calls of the tool are taken."""


class Acceptance:
    """Divides announcements into those that may be offered and those that wait. `on_change`: called when that changes.

    `trust_all`: every specification may be offered, and nothing is read or written.
    """

    def __init__(
        self, bus: Bus, declared: Iterable[Announcement], on_change: Callable[[], None], *, trust_all: bool
    ) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.CATALOGUE_BUCKET, attempts=1)
        self._declared = {announced.spec.name: announced.spec for announced in declared}
        self._on_change = on_change
        self._trust_all = trust_all
        self._accepted: dict[str, list[str]] = {}
        """Key of an entry -> the accepted digests."""
        self._is_outdated = True
        self._read_at = 0.0
        self._compared: dict[str, tuple[list[str], ToolSpec]] = {}
        """Tool that waits -> its accepted digests, and the newest of these specifications that is stored."""
        self._logged: dict[str, set[str]] = {}
        """Key of an entry -> digests of its tool that were logged as not accepted."""
        self._subscription: Subscription | None = None

    async def start(self) -> "Acceptance":
        """Follow the entries."""

        def on_entry(_key: str, _data: bytes) -> None:
            self.forget()
            self._on_change()

        if not self._trust_all:
            self._subscription = await self._bucket.watch(keys.accepted_specs.all, on_entry, reads_back=True)
        return self

    async def stop(self) -> None:
        """Stop following."""
        if self._subscription is not None:
            await self._subscription.stop()

    def forget(self) -> None:
        """Read the entries again: the server may be another one."""
        self._is_outdated = True

    async def divide(self, candidates: Candidates) -> tuple[Candidates, dict[str, RefusedTool]]:
        """Return what may be offered, and an entry for each tool of which something waits. Raises BusError."""
        if self._trust_all:
            return candidates, {}
        await self._read(candidates)
        offered: Candidates = {}
        waiting: dict[str, RefusedTool] = {}
        for name, several in candidates.items():
            key, declared = keys.accepted_specs(name), self._declared.get(name)
            if key not in self._accepted and declared is None:
                await self._accept_first(key, choose(several).digest)
            allowed = [*([declared.digest()] if declared else []), *self._accepted.get(key, ())]
            if chosen := [one for one in several if one.is_accepted or one.digest in allowed]:
                offered[name] = chosen
            rest = [one for one in several if not one.is_accepted and one.digest not in allowed]
            if rest and len(waiting) < _MAX_WAITING_TOOLS:
                waiting[name] = await self._waiting(name, rest, allowed)
        self._compared = {name: compared for name, compared in self._compared.items() if name in waiting}
        return offered, waiting

    async def _read(self, names: Iterable[str]) -> None:
        if not self._is_outdated and time.monotonic() - self._read_at < _REREAD_INTERVAL_S:
            return
        self._is_outdated = False
        try:
            entries = await self._bucket.get_many([keys.accepted_specs(name) for name in names])
        except BusError:
            self._is_outdated = True
            raise
        self._read_at = time.monotonic()
        before, self._accepted = self._accepted, {key: _digests(entry) for key, entry in entries.items()}
        for key, digests in self._accepted.items():
            if digests != before.get(key, digests):
                self._logged.pop(key, None)

    async def _accept_first(self, key: str, digest: str) -> None:
        """Accept a tool's first specification, or learn that there is an entry."""
        entry = await self._bucket.get(key)
        if not entry.data:
            try:
                await self._bucket.update(key, AcceptedSpecs(digests=[digest]), revision=entry.sequence)
                logger.info("first_tool_specification_accepted", key=key, digest=digest)
            except Outdated:
                logger.debug("another_tool_runner_was_first", key=key)
            entry = await self._bucket.get(key)
        self._accepted[key] = _digests(entry)

    async def _waiting(self, name: str, rest: list[Announcement], allowed: list[str]) -> RefusedTool:
        first = choose(rest)
        others = sorted({one.digest for one in rest} - {first.digest})
        changes = await self._changes(name, first.spec, allowed)
        reason = f"its specification {first.digest} is not accepted" + (f", {allowed[-1]} is" if allowed else "")
        if changes:
            reason += f"; changed: {', '.join(changes)}"
        if others:
            reason += f"; {len(others)} more wait"
        reason += f". To accept it: runwire tools accept {name} {first.digest}"
        self._log_once(name, first, allowed, changes)
        return RefusedTool(name=name, reason=reason, digests=[first.digest, *others][:_MAX_WAITING_DIGESTS])

    async def _changes(self, name: str, spec: ToolSpec, allowed: list[str]) -> list[str]:
        """Return how a specification differs from the newest accepted one; empty if that was never served."""
        digests, accepted = self._compared.get(name, ([], None))
        if accepted is None or digests != allowed:
            found = [self._declared[name]] if name in self._declared else []
            stored = await self._bucket.get_many([keys.tool_spec(digest) for digest in allowed])
            parsed = (stored[key].parsed(ToolSpec) for digest in allowed if (key := keys.tool_spec(digest)) in stored)
            found += [one for one in parsed if one is not None]
            if not found:
                return []
            accepted = found[-1]
            self._compared[name] = (allowed, accepted)
        return differences(accepted, spec)

    def _log_once(self, name: str, announced: Announcement, allowed: list[str], changes: list[str]) -> None:
        key = keys.accepted_specs(name)
        logged = self._logged.get(key, set())
        if announced.digest in logged or len(logged) >= _MAX_WAITING_DIGESTS:
            return
        if logged or len(self._logged) < _MAX_LOGGED_TOOLS:
            self._logged[key] = logged | {announced.digest}
            logger.warning(
                "tool_specification_not_accepted",
                tool=name,
                digest=announced.digest,
                version=announced.version,
                accepted=allowed[-1:],
                changed=changes,
                remedy=f"runwire tools accept {name} {announced.digest}",
            )


def _digests(entry: Entry) -> list[str]:
    found = entry.parsed(AcceptedSpecs)
    if found is None:
        logger.warning("accepted_specs_invalid", key=entry.key)
    return found.digests if found else []


def differences(accepted: ToolSpec, announced: ToolSpec) -> list[str]:
    """Return the fields that differ; numbers, flags and side effects with both values. Quotes no text of the tool."""
    found = []
    for field in ToolSpec.model_fields:
        before, after = getattr(accepted, field), getattr(announced, field)
        if before != after:
            is_short = field == "side_effects" or isinstance(after, bool | int | float | None)
            found.append(f"{field} ({_shown(before)} to {_shown(after)})" if is_short else field)
    return found


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        self.problem: str | None = None
        """Why the catalogue could not be written; None when it was."""

    async def start(self) -> "CatalogueWriter":
        """Start to write."""
        await self._acceptance.start()

        def on_reconnect() -> None:
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

    async def _write(self) -> None:
        while True:
            self._changed.clear()
            try:
                self.problem = await self._write_all()
            except BusError as error:
                self.problem = f"acceptance of tools: {error}"
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
