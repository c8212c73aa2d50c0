"""Read an uploaded file, as a body or as the file of a form; send an artifact's bytes: all, a range, or none.

Rule 1: an upload is bounded as it arrives, and never held in memory.
Rule 2: an artifact never becomes a page of this origin: it is an attachment unless it is a raster image, with no
sniffing and an empty sandbox.
Rule 3: an artifact never changes, so its digest is its entity tag, and a range that is fetched later still fits.
Rule 4: bytes are sent as they are stored. Only complete JSON is compressed, for clients that accept that.
"""

import asyncio
import mimetypes
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from contracts.artifacts import ArtifactRef
from services.gateway.edge.request_body import check_encoding
from services.gateway.edge.routing import accepts_gzip
from services.gateway.errors import BodyTooLarge, BodyTooSlow, InvalidInput, RangeNotSatisfiable

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
_MAX_SILENCE_S = 30.0
_CHUNK_BYTES = 1 << 20
_MAX_FORM_BYTES = 64 << 10
"""Largest form, without its file."""
_MAX_TYPE_CHARACTERS = 200
_UNSPECIFIC_TYPES = frozenset({"", "application/octet-stream", "application/x-www-form-urlencoded"})
"""Types that programs send when they were given none; the last is curl's."""
_QUERY_PARAMETERS = frozenset({"session_id", "filename", "namespace", "ttl_s"})
_MAX_FIELD_CHARACTERS = 100
"""Characters of a field's name that an error shows."""


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


def disposition(kind: str, name: str) -> str:
    """Return the header that names a file."""
    ascii_name = re.sub(r"[^ !#-\[\]-~]", "_", name)
    return f"{kind}; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"


@dataclass(frozen=True, slots=True)
class Upload:
    """A file while it arrives."""

    chunks: AsyncIterator[bytes]
    mime_type: str | None
    filename: str | None


@asynccontextmanager
async def read_upload(request: Request, limit: int) -> AsyncIterator[Upload]:
    """Yield the file of a request, of at most `limit` bytes.

    Raises BodyTooLarge, BodyTooSlow and InvalidInput, some of them while the chunks are read.
    """
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        yield Upload(_bounded(request, limit), _specific_type(kind), None)
        return
    try:
        parser = MultiPartParser(
            request.headers,
            _bounded(request, limit + _MAX_FORM_BYTES),
            max_files=1,
            max_fields=8,
            max_part_size=_MAX_FORM_BYTES,
        )
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeError) as error:  # A form names the encoding of its texts.
        raise InvalidInput("", f"the form cannot be read: {error}") from error
    try:
        file = next((value for value in form.values() if isinstance(value, UploadFile)), None)
        if file is None:
            raise InvalidInput("file", "the form holds no file")
        for name, value in form.items():
            if value is not file:  # It would be ignored.
                reason = "the form has a file and nothing else"
                if name in _QUERY_PARAMETERS:
                    reason = f"stands in the address, not in the form: /v1/artifacts?{name}=…"
                raise InvalidInput(name[:_MAX_FIELD_CHARACTERS], reason)
        yield Upload(_chunks(file), _specific_type(file.content_type or ""), file.filename or None)
    finally:
        await form.close()


async def _bounded(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    check_encoding(request)
    if int(request.headers.get("content-length") or 0) > limit:
        raise BodyTooLarge(limit)
    size, stream = 0, aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(_MAX_SILENCE_S):
                chunk = await anext(stream, None)
        except TimeoutError as error:
            raise BodyTooSlow(_MAX_SILENCE_S) from error
        if chunk is None:
            return
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(limit)
        yield chunk


async def _chunks(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(_CHUNK_BYTES):
        yield chunk


def _specific_type(given: str) -> str | None:
    if len(given) > _MAX_TYPE_CHARACTERS:
        raise InvalidInput("Content-Type", f"must not have more than {_MAX_TYPE_CHARACTERS} characters")
    return None if given.partition(";")[0].strip().lower() in _UNSPECIFIC_TYPES else given
