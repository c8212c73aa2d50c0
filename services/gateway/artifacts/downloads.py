"""Give out an artifact's bytes: whole, in part, or not at all when the caller has them. No I/O but the download itself.

Rule 1: nobody's bytes become a page of ours: attachment unless they are a raster image, no sniffing, a sandbox without
anything in it.
Rule 2: an artifact never changes, so its digest is its entity tag, and a range that is asked for later fits.
Rule 3: bytes are passed on as they are stored. Only JSON as a whole is compressed, for callers who take that.
"""

import asyncio
import mimetypes
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import quote

from fastapi.responses import StreamingResponse

from contracts.artifacts import ArtifactRef
from services.gateway.errors import RangeNotSatisfiable
from services.shared.artifacts.downloads import Download

_RASTER = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII | re.IGNORECASE)
_GZIP = re.compile(r"(?:^|,)\s*(gzip|\*)\s*(?:;\s*q=([0-9.]+)\s*)?(?=,|$)", re.ASCII | re.IGNORECASE)
_JSON = re.compile(r"[a-z]+/(?:[^;]*\+)?json\s*(?:;|$)", re.ASCII | re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,199}", re.ASCII)
_WORTH_BYTES = 1024
_GZIP_WINDOW = 31
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes."""

    offset: int
    length: int


def span_of(headers: Mapping[str, str], ref: ArtifactRef) -> Span | None:
    """Return the range that is asked for; None for all. A form that we do not serve counts as none (RFC 9110 14.2).

    Raises RangeNotSatisfiable.
    """
    match = _RANGE.fullmatch(headers.get("range", "").replace(" ", ""))
    if match is None or match[1] == match[2] == "" or headers.get("if-range", tag_of(ref)) != tag_of(ref):
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
    return Span(first, last - first + 1)


def tag_of(ref: ArtifactRef, *, compressed: bool = False) -> str:
    """The entity tag of the bytes as they are sent."""
    return f'"{ref.sha256}{"-gzip" if compressed else ""}"'


def known_as(headers: Mapping[str, str], ref: ArtifactRef) -> str | None:
    """The tag under which the caller has these bytes, compressed or not; None: it has them not."""
    given = {tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")}
    tags = (tag_of(ref), tag_of(ref, compressed=True))
    return next((tag for tag in tags if tag in given or "*" in given), None)


def takes_gzip(headers: Mapping[str, str]) -> bool:
    """Whether the caller takes compressed bodies."""
    weights = {name.lower(): weight for name, weight in _GZIP.findall(headers.get("accept-encoding", ""))}
    weight = weights.get("gzip", weights.get("*"))
    return weight is not None and (weight == "" or bool(weight.strip("0.")))


def is_compressed(headers: Mapping[str, str], ref: ArtifactRef, span: Span | None) -> bool:
    """Whether to compress on the way."""
    return span is None and ref.size > _WORTH_BYTES and _JSON.match(ref.mime_type) is not None and takes_gzip(headers)


def headers_of(ref: ArtifactRef, span: Span | None = None, *, compressed: bool = False) -> dict[str, str]:
    """What is said about the bytes that follow."""
    found = {
        **_SAFE,
        "Content-Type": ref.mime_type if _MEDIA_TYPE.fullmatch(ref.mime_type) else "application/octet-stream",
        "Content-Disposition": _disposition(ref),
        "ETag": tag_of(ref, compressed=compressed),
    }
    if compressed:
        return {**found, "Content-Encoding": "gzip"}
    found |= {"Accept-Ranges": "bytes", "Content-Length": str(ref.size if span is None else span.length)}
    if span is not None:
        found["Content-Range"] = f"bytes {span.offset}-{span.offset + span.length - 1}/{ref.size}"
    return found


def streamed(download: Download, span: Span | None, *, compressed: bool) -> StreamingResponse:
    """The response that passes on a download. What fails in its middle breaks the connection off."""
    chunks = _gzipped(download) if compressed else _closed(download)
    return StreamingResponse(
        chunks, 200 if span is None else 206, headers_of(download.ref, span, compressed=compressed)
    )


async def _closed(download: Download) -> AsyncIterator[bytes]:
    async with aclosing(download.chunks()) as chunks:
        async for chunk in chunks:
            yield chunk


async def _gzipped(download: Download) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(wbits=_GZIP_WINDOW)
    async for chunk in _closed(download):
        if packed := await asyncio.to_thread(packer.compress, chunk):
            yield packed
    yield packer.flush()


def _disposition(ref: ArtifactRef) -> str:
    name = ref.filename
    if name is None:
        known = mimetypes.guess_extension(ref.mime_type.partition(";")[0]) or ""
        name = f"{ref.namespace or 'artifact'}-{ref.artifact_id[-8:]}{known}"
    plain = re.sub(r"[^ !#-\[\]-~]", "_", name)
    kind = "inline" if ref.mime_type in _RASTER else "attachment"
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
