"""List a tenant's runs, newest first, from the index that planners write (KV bucket `runs`).

A key is the time of the request and the run's id, so sorted keys are pages: a cursor is the last key of a page. Runs
that no planner has opened yet are not in the index.
"""

import asyncio
import base64
import binascii
import heapq
import re

from contracts import keys
from contracts.runs import RunStatus, State
from services.gateway.auth.caller import Caller
from services.gateway.errors import InvalidInput
from services.messaging.connection import Bus
from services.messaging.kv import Bucket

from .deletions import Deletions

PAGE_CURSOR = r"^[A-Za-z0-9_-]{30}$"
"""The 22 bytes of a key, in base64url."""
MAX_ENTRIES_READ = 1000
"""Entries read for one page. With a filter that matches few runs the page is short, and its cursor continues."""
_KEY = re.compile(r"[0-9a-f]{44}", re.ASCII)
_ENTRIES_AT_ONCE = 100
_READ_ATTEMPTS = 2


class RunIndex:
    """Reads the index."""

    def __init__(self, bus: Bus, deletions: Deletions) -> None:
        self._bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=_READ_ATTEMPTS)
        self._deletions = deletions

    async def page(
        self, caller: Caller, limit: int, cursor: str | None = None, status: State | None = None
    ) -> tuple[list[RunStatus], str | None]:
        """Return up to `limit` runs after `cursor` that the caller may see, and the cursor of the next page.

        The cursor is None after the oldest run.

        Raises InvalidInput and BusError.
        """
        tenant = caller.tenant
        before = _decoded(cursor) if cursor else None
        prefix = keys.runs_of(tenant).removesuffix("*")
        known = (key.removeprefix(prefix) for key in await self._bucket.keys(keys.runs_of(tenant)))
        older = (key for key in known if _KEY.fullmatch(key) and (before is None or key < before))
        newest = heapq.nlargest(MAX_ENTRIES_READ + 1, older)
        found: list[RunStatus] = []
        for start in range(0, min(len(newest), MAX_ENTRIES_READ), _ENTRIES_AT_ONCE):
            part = newest[start : start + _ENTRIES_AT_ONCE]
            entries = await asyncio.gather(*(self._bucket.get(prefix + key) for key in part))
            runs = [entry.parsed(RunStatus) for entry in entries]  # None: deleted, or written by another version.
            deleted = await self._deletions.among(tenant, [run.run_id for run in runs if run is not None])
            for position, run in enumerate(runs, start):
                if run is None or run.run_id in deleted or not caller.may_see(run.user_id):
                    continue
                if status in {None, run.status}:
                    found.append(run)
                if len(found) == limit:
                    return found, _encoded(newest[position]) if position + 1 < len(newest) else None
        return found, _encoded(newest[MAX_ENTRIES_READ - 1]) if len(newest) > MAX_ENTRIES_READ else None


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
