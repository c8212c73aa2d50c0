"""List a tenant's runs, newest first, from the index that the planner keeps (KV `runs`).

A key is the time of the request and the run's id, so sorted keys are pages: a cursor is the last key shown. Runs that
no planner has opened yet are not in the index.
"""

import asyncio
import base64
import binascii
import heapq
import re
from dataclasses import dataclass

from contracts import keys
from contracts.runs import RunStatus, State
from services.gateway.errors import InvalidInput
from services.gateway.stored_runs.deletions import Deletions
from services.messaging.connection import Bus
from services.messaging.kv import Bucket

PAGE_CURSOR = r"^[A-Za-z0-9_-]{30}$"
"""A key's 22 bytes in base64url."""
_KEY = re.compile(r"[0-9a-f]{44}", re.ASCII)
_READ_AT_ONCE = 100
_MOST_READ = 1000
"""Values that one request looks at: with a filter that matches little the page is short, and its cursor goes on."""
_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Page:
    """Some runs, and the cursor of those that follow; None after the oldest."""

    runs: list[RunStatus]
    next_cursor: str | None


class RunIndex:
    """Reads the index."""

    def __init__(self, bus: Bus, deletions: Deletions) -> None:
        self._bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=_ATTEMPTS)
        self._deletions = deletions

    async def page(self, tenant: str, limit: int, cursor: str | None = None, status: State | None = None) -> Page:
        """Return up to `limit` runs after `cursor`. Raises InvalidInput and BusError."""
        before = _decoded(cursor) if cursor else None
        prefix = keys.runs_of(tenant).removesuffix("*")
        known = (key.removeprefix(prefix) for key in await self._bucket.keys(keys.runs_of(tenant)))
        newest = heapq.nlargest(
            _MOST_READ + 1, (key for key in known if (before is None or key < before) and _KEY.fullmatch(key))
        )
        found: list[RunStatus] = []
        for start in range(0, min(len(newest), _MOST_READ), _READ_AT_ONCE):
            part = newest[start : start + _READ_AT_ONCE]
            # None: deleted meanwhile, or written by another version.
            read = [
                entry.parsed(RunStatus)
                for entry in await asyncio.gather(*(self._bucket.get(prefix + key) for key in part))
            ]
            deleted = await self._deletions.among(tenant, [run.run_id for run in read if run is not None])
            for number, run in enumerate(read):
                if run is not None and run.run_id not in deleted and status in {None, run.status}:
                    found.append(run)
                if len(found) == limit:
                    at = start + number
                    return Page(found, _encoded(newest[at]) if at + 1 < len(newest) else None)
        return Page(found, _encoded(newest[_MOST_READ - 1]) if len(newest) > _MOST_READ else None)


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
