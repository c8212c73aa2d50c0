"""Send an artifact that does not fit into one message, in chunks, a window of them at a time."""

import asyncio
from collections import deque

from contracts.artifacts.references import SEQ_HEADER, UPLOAD_HEADER, ArtifactRef, ChunkTaken, PutArtifact, UploadOpened
from contracts.wire import subjects
from services.shared.artifacts.errors import StorageUnavailable
from services.shared.artifacts.requests import StoreRequests, warning_of
from services.shared.artifacts.spool import Source

_CHUNK_ANSWER_S = 120.0
"""Seconds to wait for a chunk's reply. The last one is acknowledged when the S3 server has stored everything."""


async def upload(requests: StoreRequests, put: PutArtifact, source: Source) -> tuple[ArtifactRef, str | None]:
    """Send the bytes from the beginning, once. Return their reference and a warning, or None.

    Raises a kind of ArtifactFailed.
    """
    answer = await requests.send(subjects.artifact_open(), put.model_dump_json().encode())
    opened = UploadOpened.model_validate_json(answer.data)
    ref, warning = opened.ref, warning_of(answer)
    under_way: deque[asyncio.Task[tuple[ChunkTaken, str | None]]] = deque()
    try:
        for seq, offset in enumerate(range(0, put.size if ref is None else 0, opened.chunk_bytes)):
            if len(under_way) >= opened.window:
                await under_way[0]
                under_way.popleft()
            chunk = await source.read(offset, min(opened.chunk_bytes, put.size - offset))
            under_way.append(asyncio.create_task(_send(requests, opened, seq, chunk)))
        while under_way:
            taken, warning = await under_way[0]
            ref = taken.ref
            under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    if ref is None:
        raise StorageUnavailable("the upload ended without a reference")
    return ref, warning


async def _send(requests: StoreRequests, opened: UploadOpened, seq: int, chunk: bytes) -> tuple[ChunkTaken, str | None]:
    """Send one chunk. While waiting for its reply, check now and then that the store still has it."""
    headers = {UPLOAD_HEADER: opened.upload_id, SEQ_HEADER: str(seq)}

    async def is_lost() -> bool:
        return await requests.is_refused(opened.subject, headers)

    answer = await requests.send(opened.subject, chunk, headers, wait_s=_CHUNK_ANSWER_S, is_lost=is_lost)
    return ChunkTaken.model_validate_json(answer.data), warning_of(answer)
