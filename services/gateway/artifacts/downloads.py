"""Send an artifact's bytes: all of them, a range, or none when the client has them. Only the download itself does I/O.

Rule 1: an artifact never becomes a page of this origin: it is an attachment unless it is a raster image, with no
sniffing and an empty sandbox.
Rule 2: an artifact never changes, so its digest is its entity tag, and a range that is fetched later still fits.
Rule 3: bytes are sent as they are stored. Only complete JSON is compressed, for clients that accept that.
"""

import mimetypes
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import quote

from fastapi.responses import StreamingResponse

from contracts.artifacts.references import ArtifactRef
from services.gateway.edge.answers import accepts_gzip, gzipped
from services.gateway.errors import RangeNotSatisfiable
from services.shared.artifacts.client import Download

_RASTER = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII | re.IGNORECASE)
_JSON = re.compile(r"[a-z]+/(?:[^;]*\+)?json\s*(?:;|$)", re.ASCII | re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,199}", re.ASCII)
_MIN_COMPRESSED_BYTES = 1024
SAFETY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of bytes."""

    offset: int
    length: int


def range_of(headers: Mapping[str, str], ref: ArtifactRef) -> ByteRange | None:
    """Return the requested range; None for all bytes. An unsupported form of range is ignored (RFC 9110 14.2).

    Raises RangeNotSatisfiable.
    """
    match = _RANGE.fullmatch(headers.get("range", "").replace(" ", ""))
    if match is None or match[1] == match[2] == "" or headers.get("if-range", etag_of(ref)) != etag_of(ref):
        return None
    if match[1] == "":
        length = min(int(match[2]), ref.size)
        first, last = ref.size - length, ref.size - 1
    else:
        first, last = int(match[1]), min(int(match[2] or ref.size - 1), ref.size - 1)
        if match[2] and int(match[2]) < first:
            return None
    if first > last:
        raise RangeNotSatisfiable(ref.size)
    return ByteRange(first, last - first + 1)


def etag_of(ref: ArtifactRef, *, compressed: bool = False) -> str:
    """Return the entity tag of the bytes as they are sent."""
    return f'"{ref.sha256}{"-gzip" if compressed else ""}"'


def matching_etag(headers: Mapping[str, str], ref: ArtifactRef) -> str | None:
    """Return the tag under which the client has these bytes, compressed or not; None when it does not have them."""
    given = {tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")}
    tags = (etag_of(ref), etag_of(ref, compressed=True))
    return next((tag for tag in tags if tag in given or "*" in given), None)


def is_compressed(headers: Mapping[str, str], ref: ArtifactRef, part: ByteRange | None) -> bool:
    """Return whether the bytes are compressed for this request."""
    is_large_json = ref.size > _MIN_COMPRESSED_BYTES and _JSON.match(ref.mime_type) is not None
    return part is None and is_large_json and accepts_gzip(headers)


def headers_of(ref: ArtifactRef, part: ByteRange | None = None, *, compressed: bool = False) -> dict[str, str]:
    """Return the headers of a response with these bytes."""
    name = ref.filename
    if name is None:
        extension = mimetypes.guess_extension(ref.mime_type.partition(";")[0]) or ""
        name = f"{ref.namespace or 'artifact'}-{ref.artifact_id[-8:]}{extension}"
    found = {
        **SAFETY_HEADERS,
        "Content-Type": ref.mime_type if _MEDIA_TYPE.fullmatch(ref.mime_type) else "application/octet-stream",
        "Content-Disposition": disposition("inline" if ref.mime_type in _RASTER else "attachment", name),
        "ETag": etag_of(ref, compressed=compressed),
    }
    if compressed:
        return {**found, "Content-Encoding": "gzip"}
    found |= {"Accept-Ranges": "bytes", "Content-Length": str(ref.size if part is None else part.length)}
    if part is not None:
        found["Content-Range"] = f"bytes {part.offset}-{part.offset + part.length - 1}/{ref.size}"
    return found


def streamed(download: Download, part: ByteRange | None, *, compressed: bool) -> StreamingResponse:
    """Return the response that passes on a download. A failure in its middle closes the connection."""
    chunks = _closed(download)
    return StreamingResponse(
        gzipped(chunks) if compressed else chunks,
        200 if part is None else 206,
        headers_of(download.ref, part, compressed=compressed),
    )


async def _closed(download: Download) -> AsyncIterator[bytes]:
    async with aclosing(download.chunks()) as chunks:
        async for chunk in chunks:
            yield chunk


def disposition(kind: str, name: str) -> str:
    """Return the header that names a file."""
    ascii_name = re.sub(r"[^ !#-\[\]-~]", "_", name)
    return f"{kind}; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"
