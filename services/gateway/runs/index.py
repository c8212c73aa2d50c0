"""List a tenant's runs or sessions, newest first, from the index that planners write (KV bucket `runs`).

The last part of a key is a time and an id, so sorted keys are pages: a cursor is the last key of a page. The time is
that of the run's request, or of the session's first one. Runs that no planner has opened yet are not in the index.
"""

import asyncio
import base64
import binascii
import heapq
import re
from typing import Generic, TypeVar

from contracts.runs.requests import RunStatus
from contracts.sessions.records import SessionEntry
from contracts.wire import keys
from contracts.wire.subject import Subject
from services.gateway.auth.caller import Caller
from services.gateway.errors import InvalidInput
from services.gateway.runs.deletions import Deletions
from services.messaging.connection import Bus
from services.messaging.kv import Bucket

PAGE_CURSOR = r"^[A-Za-z0-9_-]{30}$"
"""The 22 bytes of a key, in base64url."""
MAX_ENTRIES_READ = 1000
"""Entries read for one page. With a filter that matches few runs the page is short, and its cursor continues."""
_KEY = re.compile(r"[0-9a-f]{44}", re.ASCII)
_ENTRIES_AT_ONCE = 100
_READ_ATTEMPTS = 2

Listed = TypeVar("Listed", bound=RunStatus | SessionEntry)


class _Index(Generic[Listed]):
    """Reads the entries of one kind. `row`: that of their keys."""

    def __init__(self, bus: Bus, kind: type[Listed], row: Subject) -> None:
        self._bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=_READ_ATTEMPTS)
        self._kind = kind
        self._row = row

    async def page(
        self, caller: Caller, limit: int, cursor: str | None = None, **wanted: str | None
    ) -> tuple[list[Listed], str | None]:
        """Return up to `limit` entries after `cursor` that the caller may see, and the cursor of the next page.

        The cursor is None after the oldest entry. `wanted`: values of fields; None: any. Raises InvalidInput and
        BusError.
        """
        fields = [(name, value) for name, value in wanted.items() if value is not None]
        before = _decoded(cursor) if cursor else None
        pattern = self._row.pattern(tenant=caller.tenant)
        prefix = pattern.removesuffix("*")
        known = (key.removeprefix(prefix) for key in await self._bucket.keys(pattern))
        older = (key for key in known if _KEY.fullmatch(key) and (before is None or key < before))
        newest = heapq.nlargest(MAX_ENTRIES_READ + 1, older)
        found: list[Listed] = []
        for start in range(0, min(len(newest), MAX_ENTRIES_READ), _ENTRIES_AT_ONCE):
            part = newest[start : start + _ENTRIES_AT_ONCE]
            entries = await asyncio.gather(*(self._bucket.get(prefix + key) for key in part))
            listed = [entry.parsed(self._kind) for entry in entries]  # None: deleted, or written by another version.
            for position, each in enumerate(await self._kept(caller.tenant, listed), start):
                if each is None or not caller.may_see(each.user_id):
                    continue
                if all(getattr(each, name) == value for name, value in fields):
                    found.append(each)
                if len(found) == limit:
                    return found, _encoded(newest[position]) if position + 1 < len(newest) else None
        return found, _encoded(newest[MAX_ENTRIES_READ - 1]) if len(newest) > MAX_ENTRIES_READ else None

    async def _kept(self, _tenant: str, listed: list[Listed | None]) -> list[Listed | None]:
        """Return the entries with None for those that are deleted although they still exist."""
        return listed


class RunIndex(_Index[RunStatus]):
    """Reads the index of runs."""

    def __init__(self, bus: Bus, deletions: Deletions) -> None:
        super().__init__(bus, RunStatus, keys.run_entry)
        self._deletions = deletions

    async def _kept(self, tenant: str, listed: list[RunStatus | None]) -> list[RunStatus | None]:
        deleted = await self._deletions.among(tenant, [run.run_id for run in listed if run is not None])
        return [None if run is None or run.run_id in deleted else run for run in listed]


class SessionIndex(_Index[SessionEntry]):
    """Reads the index of sessions."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, SessionEntry, keys.session_entry)


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(bytes.fromhex(key)).decode().rstrip("=")


def _decoded(cursor: str) -> str:
    try:
        key = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).hex()
    except (ValueError, binascii.Error):
        key = ""
    if not _KEY.fullmatch(key):
        raise InvalidInput("cursor", "is not the `next_cursor` of an earlier page")
    return key
