"""Which specifications of a tool may be offered: the first one seen, and those that an operator has accepted.

Rule 1: the first specification of a tool is accepted with a guarded write, so one of several tool runners decides.
Rule 2: any other specification waits for `runwire tools accept`. Of one that waits, only its digest is stored.
Rule 3: what the tools file declares is accepted, and counts as the first specification of its tool.
Rule 4: an entry that cannot be parsed accepts nothing.
Rule 5: a tool that announces ever new specifications costs bounded memory, reads, writes and lines of the log.
"""

import time
from collections.abc import Callable, Iterable

import structlog

from contracts.tools.messages import AcceptedSpecs, RefusedTool, ToolSpec
from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Outdated
from services.messaging.kv import Bucket, Entry
from services.messaging.nats_connection import Subscription

from .announcements import Announcement, choose

logger = structlog.get_logger(__name__)

Candidates = dict[str, list[Announcement]]
"""Tool -> what its instances and the tools file announce."""

_REREAD_INTERVAL_S = 5.0
_MAX_WAITING_TOOLS = 100
_MAX_WAITING_DIGESTS = 8
_MAX_LOGGED_TOOLS = 1000


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

        async def on_entry(key: str, _data: bytes) -> None:
            self._logged.pop(key, None)
            self.forget()
            self._on_change()

        if not self._trust_all:
            self._subscription = await self._bucket.watch(keys.accepted_specs.all, on_entry)
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
        """Read the entries of these tools again if they may have changed."""
        if not self._is_outdated and time.monotonic() - self._read_at < _REREAD_INTERVAL_S:
            return
        self._is_outdated = False
        try:
            entries = await self._bucket.get_many([keys.accepted_specs(name) for name in names])
        except BusError:
            self._is_outdated = True
            raise
        self._read_at = time.monotonic()
        self._accepted = {key: _digests(entry) for key, entry in entries.items()}

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
