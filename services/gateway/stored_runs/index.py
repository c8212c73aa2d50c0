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

from pydantic import ValidationError

from contracts import keys, names
from contracts.runs import RunStatus, State
from services.gateway.errors import InvalidInput
from services.gateway.stored_runs.deletions import Deletions
from services.messaging.connection import Bus

PAGE_CURSOR = r"^[A-Za-z0-9_-]{30}$"
"""A key's 22 bytes in base64url."""
_KEY = re.compile(r"[0-9a-f]{44}", re.ASCII)
_BUCKET = f"KV_{keys.RUNS_BUCKET}"
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
        self._bus = bus
        self._deletions = deletions

    async def page(self, tenant: str, limit: int, cursor: str | None = None, status: State | None = None) -> Page:
        """Return up to `limit` runs after `cursor`. Raises InvalidInput and BusError."""
        before = _decoded(cursor) if cursor else None
        known = await self._keys(tenant)
        newest = heapq.nlargest(
            _MOST_READ + 1, (key for key in known if (before is None or key < before) and _KEY.fullmatch(key))
        )
        found: list[RunStatus] = []
        for start in range(0, min(len(newest), _MOST_READ), _READ_AT_ONCE):
            part = newest[start : start + _READ_AT_ONCE]
            read = await asyncio.gather(*(self._read(tenant, key) for key in part))
            deleted = await self._deletions.among(tenant, [run.run_id for run in read if run is not None])
            for number, run in enumerate(read):
                if run is not None and run.run_id not in deleted and status in {None, run.status}:
                    found.append(run)
                if len(found) == limit:
                    at = start + number
                    return Page(found, _encoded(newest[at]) if at + 1 < len(newest) else None)
        return Page(found, _encoded(newest[_MOST_READ - 1]) if len(newest) > _MOST_READ else None)

    async def _keys(self, tenant: str) -> list[str]:
        wanted = f"$KV.{keys.RUNS_BUCKET}.{keys.runs_of(tenant)}"
        prefix = wanted.removesuffix("*")
        found: list[str] = []
        while True:
            answer = await self._bus.api(f"STREAM.INFO.{_BUCKET}", {"subjects_filter": wanted, "offset": len(found)})
            part = answer["state"].get("subjects") or {}
            found += [subject[len(prefix) :] for subject in part]
            if not part or len(found) >= answer.get("total", 0):
                return found

    async def _read(self, tenant: str, key: str) -> RunStatus | None:
        subject = f"$KV.{keys.RUNS_BUCKET}.{names.checked_tenant(tenant)}.{key}"
        message = await self._bus.last(_BUCKET, subject, _ATTEMPTS)
        try:
            return RunStatus.model_validate_json(message.data) if message and message.data else None
        except ValidationError:
            return None  # Not ours to read: another version wrote it.


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
