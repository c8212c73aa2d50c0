"""Execute `read_artifact`: return a part of an observation that was too large for the model.

Rule: the planner decides from the run's log whether the model may read an artifact. This module checks that it belongs
to the run.
"""

import codecs
from typing import Any

from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound
from services.tool_runner.errors import ArtifactNotReadable, ArtifactStoreFailed

from .store_access import StoreAccess

_MAX_CHARACTER_BYTES = 4
"""Bytes of the longest UTF-8 character."""
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes that cannot begin a character."""


async def read_artifact(access: StoreAccess, max_bytes: int, until: float) -> dict[str, Any]:
    """Return the part that a call asks for, of at most `max_bytes` bytes. An unavailable store is retried `until` then.

    Raises ArtifactNotReadable and ArtifactStoreFailed.
    """
    call = access.call
    artifact_id, offset = str(call.args["artifact_id"]), int(call.args.get("offset", 0))
    length = min(int(call.args.get("length", max_bytes)), max_bytes)
    if not call.readable:
        raise ArtifactNotReadable(artifact_id)
    try:
        # A character that is cut by the end belongs to this part; one that is cut by the beginning belongs to the part
        # before.
        download = await access.client(until).get(
            call.tenant, artifact_id, run=call.run_id, offset=offset, length=max(length, _MAX_CHARACTER_BYTES)
        )
        body = await download.read(max(length, _MAX_CHARACTER_BYTES))
    except ArtifactNotFound as error:
        raise ArtifactNotReadable(artifact_id) from error
    except ArtifactFailed as error:
        raise ArtifactStoreFailed(f"the artifact {artifact_id} cannot be read now: {error.reason}", error) from error
    skipped, text, size = _text(body, is_last=download.ref.size <= offset + len(body))
    begins, ends = offset + skipped, offset + skipped + size
    found: dict[str, Any] = {"artifact_id": artifact_id, "offset": begins, "size": download.ref.size, "text": text}
    return found if ends >= download.ref.size else found | {"next_offset": ends}


def _text(body: bytes, *, is_last: bool) -> tuple[int, str, int]:
    """Return the complete characters in some bytes: how many bytes precede them, the text, and its size in bytes."""
    start = min(len(body) - len(body.lstrip(_CONTINUATION_BYTES)), _MAX_CHARACTER_BYTES - 1)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(body[start:], final=is_last)
    return start, text, len(body) - start - len(decoder.getstate()[0])
