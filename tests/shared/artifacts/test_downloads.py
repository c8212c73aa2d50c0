"""A download asks for ranges, gives them in order, and checks the digest of the whole. No server."""

import asyncio
import hashlib
import secrets

import pytest

from contracts.artifacts import ArtifactRef
from contracts.wire.base import CHUNK_BYTES
from contracts.wire.names import new_id
from services.shared.artifacts.client import Download
from services.shared.artifacts.errors import ArtifactTooLarge, StorageUnavailable

BODY = secrets.token_bytes(5 * CHUNK_BYTES + 100)


class Ranges:
    """Gives ranges of `body` in any order, and counts those that are asked for and not given yet."""

    def __init__(self, body: bytes = BODY) -> None:
        self.body = body
        self.asked: list[tuple[int, int]] = []
        self.open = 0

    async def fetch(self, offset: int, length: int) -> bytes:
        """Return a range, the later ones sooner."""
        self.asked.append((offset, length))
        self.open += 1
        try:
            for _ in range(20 - 4 * (len(self.asked) % 5)):
                await asyncio.sleep(0)
            return self.body[offset : offset + length]
        finally:
            self.open -= 1


def download(ranges: Ranges, offset: int = 0, length: int = len(BODY)) -> Download:
    """A range of BODY, of which the first chunk is there."""
    digest = hashlib.sha256(BODY).hexdigest()
    ref = ArtifactRef(artifact_id=new_id(), mime_type="text/plain", size=len(BODY), sha256=digest)
    first = ranges.body[offset : offset + min(length, CHUNK_BYTES)]
    return Download(ref, offset, length, first, ranges.fetch)


@pytest.mark.parametrize(
    ("offset", "length"), [(0, len(BODY)), (7, 10), (CHUNK_BYTES, 3 * CHUNK_BYTES), (10, len(BODY) - 10), (0, 0)]
)
async def test_ranges_come_in_order(offset: int, length: int) -> None:
    """None is asked for twice, and none beyond the end."""
    ranges = Ranges()
    assert await download(ranges, offset, length).read(len(BODY)) == BODY[offset : offset + length]
    assert sum(size for _, size in ranges.asked) == max(0, length - CHUNK_BYTES)


async def test_few_ranges_are_under_way() -> None:
    """A slow reader holds a window of them, and one that leaves cancels them."""
    ranges = Ranges()
    chunks = download(ranges).chunks()
    await anext(chunks)
    await asyncio.sleep(0)
    assert len(ranges.asked) == 4  # One chunk is held until the next one is there.
    await chunks.aclose()
    assert ranges.open == 0


async def test_other_bytes_are_found_out() -> None:
    """Of the same size: before the last chunk leaves, and not retryable. A range has no digest of its own."""
    ranges, received = Ranges(secrets.token_bytes(len(BODY))), bytearray()

    async def receive() -> None:
        async for chunk in download(ranges).chunks():
            received.extend(chunk)

    with pytest.raises(StorageUnavailable) as failure:
        await receive()
    assert not failure.value.retryable
    assert len(received) < len(BODY)
    assert await download(ranges, 1, 10).read(10) == ranges.body[1:11]


async def test_a_limit_is_checked_before_anything_is_read() -> None:
    """More than the caller wants to hold."""
    ranges = Ranges()
    with pytest.raises(ArtifactTooLarge):
        await download(ranges).read(len(BODY) - 1)
    assert not ranges.asked
