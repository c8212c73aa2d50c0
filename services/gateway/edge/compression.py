"""Compress answers with gzip, for clients that accept it. Event streams are never compressed.

Work on large bodies is done in a thread, so that it does not delay other requests. Starlette's GZipMiddleware would not
serve: it compresses in the event loop, also ranges and images, under the entity tag of the uncompressed bytes, and for
a client that refuses gzip with `q=0`.
"""

import asyncio
import gzip
import re
import zlib
from collections.abc import AsyncIterator, Mapping

from fastapi import Response
from pydantic import BaseModel

_CODING = re.compile(r"(?:^|,)\s*(gzip|\*)\s*(?:;\s*q=([0-9.]+)\s*)?(?=,|$)", re.ASCII | re.IGNORECASE)
_MIN_COMPRESSED_BYTES = 8 << 10
_GZIP_LEVEL = 6
_GZIP_WINDOW_BITS = 31
"""`wbits` of zlib: a window of 32 KiB, in the format of gzip."""


def accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether `Accept-Encoding` allows gzip (RFC 9110 12.5.3)."""
    weights = {coding.lower(): weight for coding, weight in _CODING.findall(headers.get("accept-encoding", ""))}
    weight = weights.get("gzip", weights.get("*"))
    return weight is not None and (weight == "" or bool(weight.strip("0.")))


async def json_response(shown: BaseModel, headers: Mapping[str, str], status: int = 200) -> Response:
    """Return a model as the response to a request with these headers, compressed when it is large.

    No cache stores it.
    """
    body = shown.model_dump_json().encode()
    extra = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(body) > _MIN_COMPRESSED_BYTES and accepts_gzip(headers):
        body, extra["Content-Encoding"] = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL), "gzip"
    return Response(body, status, extra, media_type="application/json")


async def gzipped(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the compressed form of a body in chunks."""
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    async for chunk in chunks:
        if compressed := await asyncio.to_thread(compressor.compress, chunk):
            yield compressed
    yield compressor.flush()
