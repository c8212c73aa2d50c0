"""Store one value of a result, or assemble one stream, under an id that a repeated handling of the call finds again."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import structlog

from contracts.artifacts.references import ArtifactRef
from contracts.tools.messages import CallRequested
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactNotFound
from services.shared.redaction.placeholders import wire_size
from services.shared.redaction.stored_values import to_blob
from services.tool_runner.calls.progress import FinishedStream

logger = structlog.get_logger(__name__)

_MAX_INLINE_ENCODE_BYTES = 256 * 1024
"""Smaller values are encoded without a thread."""


class DescribedValue(NamedTuple):
    """A value, and what its reference says of it: its type, for clients that display it, and the tool's own id."""

    value: Any
    artifact_type: str | None = None
    own_id: str | None = None
    skill_id: str | None = None
    skill_name: str | None = None


async def store_value(
    client: ArtifactClient,
    call: CallRequested,
    path: str,
    described: DescribedValue,
    on_warning: Callable[[str], None] | None = None,
) -> ArtifactRef:
    """Store a value, and return its reference. Raises ArtifactFailed, ValueError, RecursionError."""
    value = described.value
    is_small = isinstance(value, bytes) or wire_size(value) <= _MAX_INLINE_ENCODE_BYTES
    blob = to_blob(value) if is_small else await asyncio.to_thread(to_blob, value)
    digest = await asyncio.to_thread(hashlib.sha256, blob.body)
    return await client.put(
        call.tenant,
        blob.body,
        session=call.session_id,
        run=call.run_id,
        namespace=call.tool,
        mime_type=blob.mime_type,
        json_type=blob.json_type,
        items=blob.items,
        artifact_type=described.artifact_type,
        own_id=described.own_id,
        skill_id=described.skill_id,
        skill_name=described.skill_name,
        artifact_id=_id_of(call, path, digest.hexdigest()),
        on_warning=on_warning,
    )


async def assembled(client: ArtifactClient, call: CallRequested, path: str, stream: FinishedStream) -> Any:
    """Return a stream's value, its reference, or None when pieces of it are gone. Raises ArtifactFailed."""
    try:
        return await client.assemble(
            call.tenant,
            call.run_id,
            call.call_id,
            stream.stream_id,
            pieces=stream.pieces,
            since=stream.since,
            artifact_id=_id_of(call, path, f"{stream.pieces} pieces"),
            session=call.session_id,
            namespace=call.tool,
        )
    except ArtifactNotFound as error:
        logger.warning("artifact_stream_lost", stream_id=stream.stream_id, reason=error.reason)
        return None


def _id_of(call: CallRequested, path: str, content: str) -> str:
    place = f"{call.tenant}\n{call.run_id}\n{call.call_id}\n{path}\n{content}"
    return hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()[:32]
