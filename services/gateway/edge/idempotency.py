"""Idempotency keys: the same key with the same body always gives the same run.

The run's id follows from the key. The server says that a write was repeated, and not whether it had the same body. So
the stored request is read before a write, and again after a repeated one, and the digests of the bodies are compared.
"""

import re

from fastapi import Request

from contracts.runs.requests import RunRequested
from services.gateway.errors import IdempotencyConflict, InvalidInput
from services.gateway.runs.reader import RunReader
from services.gateway.runs.stored_run import StoredRun

_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)


def idempotency_key(request: Request) -> str | None:
    """Return the caller's key, None without one. Raises InvalidInput."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1 or not _KEY.fullmatch(values[0]):
        raise InvalidInput("Idempotency-Key", "must be sent once, as 1 to 255 visible ASCII characters")
    return values[0]


async def already_stored(runs: RunReader, request: RunRequested) -> StoredRun | None:
    """Return the run if its request is stored already. Raises IdempotencyConflict for one with another body."""
    found = await runs.find(request.tenant, request.run_id)
    if found is None:
        if await runs.is_deleted(request.tenant, request.run_id):
            raise IdempotencyConflict("The run of this Idempotency-Key was deleted; ask with another one.")
        return None
    stored = found.request()
    if stored is not None and stored.body_sha256 != request.body_sha256:
        raise IdempotencyConflict
    return found
