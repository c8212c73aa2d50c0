"""Read what a caller sends: bounded while it arrives, strict JSON, checked against a model.

Rule 1: nothing of a body is believed before it is read: the limit counts bytes, not Content-Length.
Rule 2: what is not JSON is refused, NaN, numbers out of range and more than 200 levels included, since no service could
pass it on.
Rule 3: a question may be as large as its images; everything beside their `data` keeps to the limit of other bodies.
Rule 4: of bodies above that limit few are held at once, and they are taken apart in another thread.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from services.gateway.errors import BodyTooLarge, BodyTooSlow, InvalidInput, TryAgain
from services.gateway.settings import GatewaySettings

Model = TypeVar("Model", bound=BaseModel)

_BODY_S = 30.0
_DRAINED = 8 << 20
"""Bytes beyond the limit that are still taken in, so that a caller who sends first and reads later sees the answer."""
_DRAINED_OF_A_QUESTION = 64 << 20
"""The same where the caller has said how much it will be: images from a disk are easily too large."""
_LARGE_AT_ONCE = 4
_LARGE_WAIT_S = 10.0
_QUICK_BYTES = 256 << 10
"""A body up to this size is taken apart in less time than it takes to wake a thread."""
_PREFIX_BYTES = 256
"""Of a data URL, before the base64."""
_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII)


class Questions:
    """Reads bodies that may bring images."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._plain = settings.max_body_bytes
        self._most = self._plain + settings.max_images_bytes * 4 // 3 + settings.max_images * _PREFIX_BYTES
        self._what = (
            f"The body, with images of {settings.max_images_bytes} bytes together at most (base64 takes a third more),"
        )
        self._slots = asyncio.Semaphore(_LARGE_AT_ONCE)

    @asynccontextmanager
    async def read(self, request: Request, model: type[Model]) -> AsyncIterator[Model]:
        """Give the question as a `model`.

        Raises BodyTooLarge, BodyTooSlow, InvalidInput, and TryAgain when many large ones are here.
        """
        async with AsyncExitStack() as held:

            async def grown() -> None:
                try:
                    async with asyncio.timeout(_LARGE_WAIT_S):
                        await held.enter_async_context(self._slots)
                except TimeoutError as error:
                    raise TryAgain("Too many large questions are being read.") from error

            drained = _DRAINED_OF_A_QUESTION if "content-length" in request.headers else _DRAINED
            # No name holds the body any longer than it takes to parse it.
            yield await self._parsed(
                model, await read_body(request, self._most, self._plain, grown, drained=drained, what=self._what)
            )

    async def _parsed(self, model: type[Model], body: bytes) -> Model:
        if len(body) <= _QUICK_BYTES:
            return parse(model, body, self._plain)
        return await asyncio.to_thread(parse, model, body, self._plain)


async def read_body(
    request: Request,
    limit: int,
    usual: int | None = None,
    grown: Callable[[], Awaitable[None]] | None = None,
    *,
    drained: int = _DRAINED,
    what: str = "The body",
) -> bytes:
    """Return the body; `grown` is called once, before more than `usual` bytes are kept.

    Raises BodyTooLarge and BodyTooSlow.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            size = 0
            async for piece in request.stream():
                size += len(piece)
                if grown and usual is not None and size > usual:
                    await grown()
                    grown = None
                if size <= limit:
                    body += piece
                elif size > limit + drained:
                    break
                else:
                    body.clear()
    except TimeoutError as error:
        raise BodyTooSlow(_BODY_S) from error
    if size > limit:
        raise BodyTooLarge(limit, what)
    return bytes(body)


def parse(model: type[Model], body: bytes, limit: int | None = None) -> Model:
    """Check a body against `model`, without coercing types; `limit` is that of everything beside the `data` of its images.

    Raises InvalidInput naming the fields, and BodyTooLarge.
    """
    try:
        value = from_json(body, allow_inf_nan=False, cache_strings=False)
        lifted = _lifted(value)
        if limit is not None and len(body) - sum(len(data) for _, data in lifted) > limit:
            raise BodyTooLarge(limit, "What the body has beside the data of its images")
        # A number such as 1e999 is infinite although its text looks fine.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("", f"the body is not JSON that can be passed on: {error}") from None
    for image, data in lifted:
        image["data"] = data
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        raise InvalidInput.of(error) from None  # Its text shows the input.


def _lifted(value: Any) -> list[tuple[dict[str, Any], str]]:
    """Take the bytes of images out of a question; nothing stands for each meanwhile."""
    images = value.get("images") if isinstance(value, dict) else None
    if not isinstance(images, list):
        return []
    found = [
        (image, image["data"]) for image in images if isinstance(image, dict) and isinstance(image.get("data"), str)
    ]
    for image, _ in found:
        image["data"] = None
    return found


def digest_of(asked: dict[str, Any]) -> str:
    """SHA-256 of what was asked, whatever the order and spacing of its JSON."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def idempotency_key(request: Request) -> str | None:
    """Return the caller's key, if there is one. Raises InvalidInput."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1 or not _KEY.fullmatch(values[0]):
        raise InvalidInput("Idempotency-Key", "must be sent once, as 1 to 255 visible ASCII characters")
    return values[0]


def trace_id(request: Request) -> str | None:
    """Return the trace of a valid `traceparent` header (W3C Trace Context), else None."""
    match = _TRACE.fullmatch(request.headers.get("traceparent", ""))
    return match[1] if match else None
