"""Runs that were deleted: the gateway writes that down and shows nothing of them from then on; planners remove what there is of them.

The deletion stands in the index of runs until nothing of the run can come back.
"""

import time
from collections.abc import Iterable

import structlog

from contracts import keys
from contracts.runs import RunDeletion
from services.gateway.errors import TryAgain
from services.messaging.connection import Bus
from services.messaging.errors import Refused, Unsure
from services.messaging.kv import Bucket

logger = structlog.get_logger(__name__)


class Deletions:
    """Writes and reads deletions."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, keys.RUNS_BUCKET, attempts=1)

    async def delete(self, tenant: str, run: str, requested_at: int | None) -> None:
        """Have a run deleted. Raises TryAgain when nobody knows whether it will be; repeating it is harmless."""
        deletion = RunDeletion(at=time.time_ns() // 1_000_000, requested_at=requested_at)
        try:
            await self._bucket.put(keys.deletion_key(tenant, run), deletion)
        except (Refused, Unsure) as error:
            raise TryAgain("The message bus does not answer.") from error
        logger.info("run_deletion_requested", run_id=run, tenant=tenant)

    async def among(self, tenant: str, runs: Iterable[str]) -> frozenset[str]:
        """Return those of at most 1,024 runs that were deleted. Raises Unavailable."""
        asked = {keys.deletion_key(tenant, run): run for run in runs}
        return frozenset(asked[key] for key in await self._bucket.get_many(list(asked)))
