"""Read an uploaded file, as a body or as the file of a form. It is bounded as it arrives, and never held in memory."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from services.gateway.edge.request_body import check_encoding
from services.gateway.errors import BodyTooLarge, BodyTooSlow, InvalidInput

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
