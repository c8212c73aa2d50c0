"""Read a request's body: bounded while it arrives, strict JSON, validated against a model.

Rule 1: the limit counts bytes as they arrive, not `Content-Length`.
Rule 2: JSON that no service could pass on is refused: NaN, numbers out of range, more than 200 levels.
Rule 3: the body of a run may be as large as its images need; everything beside their `data` keeps to the limit of other
bodies.
Rule 4: few bodies above that limit are held at once, and they are parsed in a thread.
"""

import asyncio
import json
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from services.gateway.errors import BodyTooLarge, BodyTooSlow, EncodingUnsupported, InvalidInput, TryAgain
from services.gateway.settings import GatewaySettings

Model = TypeVar("Model", bound=BaseModel)

MAX_LARGE_BODIES = 4
LARGE_BODY_WAIT_S = 10.0
_BODY_TIMEOUT_S = 30.0
_DRAINED_BYTES = 8 << 20
"""Read beyond the limit and dropped, so that a client which sends everything before it reads gets the answer."""
_DRAINED_BYTES_OF_IMAGES = 64 << 20
"""The same for a body of stated length that may hold images: these often exceed the limit."""
_MAX_INLINE_BYTES = 256 << 10
"""A body up to this size is parsed in less time than a thread needs to start."""
_DATA_URL_PREFIX_BYTES = 256


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """How large a body may be. `what`: the limited thing, as an error names it."""

    max_bytes: int
    what: str = "The body"
    drained_bytes: int = _DRAINED_BYTES
    large_bytes: int | None = None
    """A body above this size waits for a slot; None: none does."""


async def read_json(request: Request, model: type[Model], max_bytes: int, *, optional: bool = False) -> Model:
    """Return a body of at most `max_bytes` as a `model`. `optional`: no body is an empty object.

    Raises BodyTooLarge, BodyTooSlow and InvalidInput.
    """
    body = await read_body(request, BodyLimit(max_bytes))
    return parse(model, b"{}" if optional and not body else body)


async def read_body(
    request: Request, limit: BodyLimit, take_slot: Callable[[], Awaitable[None]] | None = None
) -> bytes:
    """Return the body as it was sent: a signature may be about its bytes.

    `take_slot` is called once, before more than `limit.large_bytes` are held.

    Raises BodyTooLarge, BodyTooSlow and EncodingUnsupported.
    """
    check_encoding(request)
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if take_slot and limit.large_bytes is not None and size > limit.large_bytes:
                    await take_slot()
                    take_slot = None
                if size <= limit.max_bytes:
                    body += chunk
                elif size > limit.max_bytes + limit.drained_bytes:
                    break
                else:
                    body.clear()
    except TimeoutError as error:
        raise BodyTooSlow(_BODY_TIMEOUT_S) from error
    if size > limit.max_bytes:
        raise BodyTooLarge(limit.max_bytes, limit.what)
    return bytes(body)


def check_encoding(request: Request) -> None:
    """Raise EncodingUnsupported for a compressed body. Some clients name a character set there."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity", "utf-8"}:
        raise EncodingUnsupported(encoding)


class RunInputReader:
    """Reads the bodies of runs, which may contain images."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._plain_bytes = settings.max_body_bytes
        self._max_bytes = (
            settings.max_body_bytes + settings.max_images_bytes * 4 // 3 + settings.max_images * _DATA_URL_PREFIX_BYTES
        )
        self._what = (
            f"The body, with images of {settings.max_images_bytes} bytes together at most (base64 takes a third more),"
        )
        self._slots = asyncio.Semaphore(MAX_LARGE_BODIES)

    @asynccontextmanager
    async def read(self, request: Request, model: type[Model]) -> AsyncIterator[Model]:
        """Yield the body as a `model`; a large one keeps its slot while the block lasts.

        Raises BodyTooLarge, BodyTooSlow, InvalidInput, and TryAgain when no slot is free.
        """
        async with AsyncExitStack() as slot:

            async def take_slot() -> None:
                try:
                    async with asyncio.timeout(LARGE_BODY_WAIT_S):
                        await slot.enter_async_context(self._slots)
                except TimeoutError as error:
                    raise TryAgain("Too many large questions are being read.") from error

            drained = _DRAINED_BYTES_OF_IMAGES if "content-length" in request.headers else _DRAINED_BYTES
            limit = BodyLimit(self._max_bytes, self._what, drained, large_bytes=self._plain_bytes)
            # No variable keeps the body, so that it is freed once it is parsed.
            yield await self._parsed(model, await read_body(request, limit, take_slot))

    async def _parsed(self, model: type[Model], body: bytes) -> Model:
        if len(body) <= _MAX_INLINE_BYTES:
            return parse(model, body, self._plain_bytes)
        return await asyncio.to_thread(parse, model, body, self._plain_bytes)


def parse(model: type[Model], body: bytes, max_plain_bytes: int | None = None) -> Model:
    """Validate a body without its byte order mark, and without coercing types.

    `max_plain_bytes`: of everything beside the `data` of images.

    Raises InvalidInput naming the fields, and BodyTooLarge.
    """
    try:
        value = from_json(body.removeprefix(BOM_UTF8), allow_inf_nan=False, cache_strings=False)
        images = _without_image_data(value)
        if max_plain_bytes is not None and len(body) - sum(len(data) for _, data in images) > max_plain_bytes:
            raise BodyTooLarge(max_plain_bytes, "What the body has beside the data of its images")
        # A number such as 1e999 is parsed as infinity.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        try:
            body.decode()
        except UnicodeDecodeError:
            raise InvalidInput("", "the body is not UTF-8, as JSON is") from None
        raise InvalidInput("", f"the body is not JSON that can be passed on: {error}") from None
    for image, data in images:
        image["data"] = data
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        raise InvalidInput.of(error) from None  # Its text shows the input.


def _without_image_data(value: Any) -> list[tuple[dict[str, Any], str]]:
    """Take the `data` out of each image of a body, and return the images with it."""
    images = value.get("images") if isinstance(value, dict) else None
    if not isinstance(images, list):
        return []
    found = [
        (image, image["data"]) for image in images if isinstance(image, dict) and isinstance(image.get("data"), str)
    ]
    for image, _ in found:
        image["data"] = None
    return found
