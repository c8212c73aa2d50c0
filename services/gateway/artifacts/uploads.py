"""Take in what a caller uploads: the body as it is, or the file of a form; bounded while it arrives, never held as a whole."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from services.gateway.errors import BodyTooLarge, BodyTooSlow, InvalidInput

_SILENCE_S = 30.0
_PIECE_BYTES = 1 << 20
_FORM_BYTES = 64 << 10
"""What a form may weigh beside its file."""
_MOST_TYPE = 200
_SAYS_NOTHING = frozenset({"", "application/octet-stream", "application/x-www-form-urlencoded"})
"""Types that programs send when none was given to them; the last is what curl says."""


_IN_THE_QUERY = ("session_id", "filename", "namespace", "ttl_s")
"""A form that holds one of these means it, and would be kept without it."""
_ALONE = "the form has a file and nothing else"
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Incoming:
    """A file on its way in."""

    chunks: AsyncIterator[bytes]
    mime_type: str | None
    filename: str | None


@asynccontextmanager
async def incoming(request: Request, limit: int) -> AsyncIterator[Incoming]:
    """The file that a request brings.

    Raises BodyTooLarge, BodyTooSlow and InvalidInput, some of them while it is read.
    """
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "multipart/form-data":
        yield Incoming(_bounded(request, limit), _type_of(kind), None)
        return
    try:
        parser = MultiPartParser(
            request.headers,
            _bounded(request, limit + _FORM_BYTES),
            max_files=1,
            max_fields=8,
            max_part_size=_FORM_BYTES,
        )
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeError) as error:  # A form chooses how its texts are decoded.
        raise InvalidInput("", f"the form cannot be read: {error}") from error
    try:
        file = next((value for value in form.values() if isinstance(value, UploadFile)), None)
        if file is None:
            raise InvalidInput("file", "the form holds no file")
        for name in form.keys() - {each for each, value in form.items() if value is file}:
            told = (
                f"stands in the address, not in the form: /v1/artifacts?{name}=…" if name in _IN_THE_QUERY else _ALONE
            )
            raise InvalidInput(name[:_LONGEST_NAME], told)
        yield Incoming(_pieces(file), _type_of(file.content_type or ""), file.filename or None)
    finally:
        await form.close()


async def _bounded(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    if int(request.headers.get("content-length") or 0) > limit:
        raise BodyTooLarge(limit)
    size, stream = 0, aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(_SILENCE_S):
                piece = await anext(stream, None)
        except TimeoutError as error:
            raise BodyTooSlow(_SILENCE_S) from error
        if piece is None:
            return
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(limit)
        yield piece


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(_PIECE_BYTES):
        yield piece


def _type_of(given: str) -> str | None:
    name = given.partition(";")[0].strip().lower()
    if len(given) > _MOST_TYPE:
        raise InvalidInput("Content-Type", f"must not have more than {_MOST_TYPE} characters")
    return None if name in _SAYS_NOTHING else given
