"""Mark runs as deleted. From then on the gateway does not show them, and planners remove what is stored of them.

A deletion is an entry in the index of runs; it stays until nothing of the run can come back.
"""

from collections.abc import Iterable

import structlog

from contracts.runs.requests import RunDeletion
from contracts.wire import keys, names
from contracts.wire.names import unix_ms
from services.gateway.errors import TryAgain
from services.messaging.connection import Bus
from services.messaging.errors import Refused, Unsure
from services.messaging.kv import Bucket

logger = structlog.get_logger(__name__)


class Deletions:
    """Writes and reads deletions."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=1)

    async def delete(self, tenant: str, run: str, requested_at: int | None, session_id: str | None = None) -> None:
        """Mark a run as deleted. Raises TryAgain when that may not be stored; repeating it is harmless."""
        deletion = RunDeletion(
            at=unix_ms(), requested_at=requested_at, session_id=session_id or names.own_session_id(run)
        )
        try:
            await self._bucket.put(keys.run_deletion(tenant, run), deletion)
        except (Refused, Unsure) as error:
            raise TryAgain("The message bus does not answer.") from error
        logger.info("run_deletion_requested", run_id=run, tenant=tenant)

    async def among(self, tenant: str, runs: Iterable[str]) -> frozenset[str]:
        """Return those of at most 1,024 runs that are deleted. Raises Unavailable."""
        runs_by_key = {keys.run_deletion(tenant, run): run for run in runs}
        return frozenset(runs_by_key[key] for key in await self._bucket.get_many(list(runs_by_key)))
