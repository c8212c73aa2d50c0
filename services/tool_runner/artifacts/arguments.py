"""Resolve references in a call's arguments: a tool gets values.

Rule: a reference in arguments grants nothing. It is resolved only within the run or session that the artifact belongs
to.
"""

import time
from collections.abc import Mapping
from typing import Any

from contracts.artifacts import ArtifactRef, StoredArtifact
from contracts.tools import CallRequested
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound, ArtifactTooLarge
from services.shared.redaction import as_reference, from_blob, holds_reference, plain, wire_size
from services.tool_runner.errors import ArtifactStoreFailed, InvalidArguments

from .store_access import StoreAccess

_HEADROOM_BYTES = 64 * 1024
"""Bytes of a request in addition to its arguments."""


async def resolve(access: StoreAccess, patience_s: float) -> dict[str, Any]:
    """Return the call's arguments with values in place of references.

    Raises InvalidArguments, ArtifactStoreFailed, RunEnded.
    """
    call = access.call
    if not holds_reference(call.args):
        return call.args
    found: dict[str, Any] = {}
    client = access.client(time.monotonic() + patience_s)
    max_bytes = left_bytes = access.bus.nc.max_payload - _HEADROOM_BYTES
    try:
        for ref in _references(call.args):
            if ref.artifact_id not in found:
                fetched = _fetched(client, call, ref.artifact_id, left_bytes)
                found[ref.artifact_id], size = await access.unless_ended(fetched)
                left_bytes -= size
    except ArtifactTooLarge as error:
        raise InvalidArguments(
            f"the artifacts in the arguments are too large to be passed to a tool: {error.reason}"
        ) from error
    except ArtifactFailed as error:
        raise ArtifactStoreFailed(
            f"an artifact in the arguments of {call.tool} cannot be read: {error.reason}", error
        ) from error
    args: dict[str, Any] = _resolved(call.args, found)
    if (size := wire_size(args)) > max_bytes:
        raise InvalidArguments(f"the arguments have {size} bytes, too many for a tool")
    return args


async def _fetched(client: ArtifactClient, call: CallRequested, artifact_id: str, max_bytes: int) -> tuple[Any, int]:
    """Return an artifact's value as JSON, and its size.

    Raises ArtifactFailed, and InvalidArguments for a foreign artifact.
    """
    try:
        stored = await client.head(call.tenant, artifact_id)
        if _belongs(stored, call):
            ref, body = await client.read(call.tenant, artifact_id, limit=max_bytes)
            value = from_blob(body, ref)
            return plain(value) if isinstance(value, bytes) else value, len(body)
    except ArtifactNotFound:
        pass
    raise InvalidArguments(f"there is no artifact {artifact_id} in this run or session")


def _belongs(stored: StoredArtifact, call: CallRequested) -> bool:
    """Whether it belongs to the call's run or session, or to the tenant as a whole, and to no other user."""
    if stored.user_id not in {None, call.user_id}:
        return False
    if stored.run_id is None and stored.session_id is None:
        return True
    return stored.run_id == call.run_id or (stored.session_id is not None and stored.session_id == call.session_id)


def _references(value: Any) -> list[ArtifactRef]:
    ref = as_reference(value)
    if ref is not None:
        return [ref]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [each for item in items for each in _references(item)]


def _resolved(value: Any, found: Mapping[str, Any]) -> Any:
    ref = as_reference(value)
    if ref is not None:
        return found[ref.artifact_id]
    if isinstance(value, Mapping):
        return {key: _resolved(item, found) for key, item in value.items()}
    return [_resolved(item, found) for item in value] if isinstance(value, list) else value
