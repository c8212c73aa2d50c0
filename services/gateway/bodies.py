"""Read what a caller sends: bounded while it arrives, strict JSON, checked against a model.

Rule 1: nothing of a body is believed before it is read: the limit counts bytes, not Content-Length.
Rule 2: what is not JSON is refused, NaN, numbers out of range and more than 200 levels included, since no service could pass it on.
"""

import asyncio
import hashlib
import json
import re
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from .errors import BodyTooLarge, BodyTooSlow, InvalidInput

Model = TypeVar("Model", bound=BaseModel)

_BODY_S = 30.0
_DRAINED = 8 << 20
"""Bytes beyond the limit that are still taken in, so that a caller who sends first and reads later sees the answer."""
_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body. Raises BodyTooLarge and BodyTooSlow."""
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            size = 0
            async for piece in request.stream():
                size += len(piece)
                if size <= limit:
                    body += piece
                elif size > limit + _DRAINED:
                    break
    except TimeoutError as error:
        raise BodyTooSlow(_BODY_S) from error
    if size > limit:
        raise BodyTooLarge(limit)
    return bytes(body)


def parse(model: type[Model], body: bytes) -> Model:
    """Check a body against `model`, without coercing types. Raises InvalidInput naming the fields."""
    try:
        value = from_json(body, allow_inf_nan=False, cache_strings=False)
        # A number such as 1e999 is infinite although its text looks fine.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("", f"the body is not JSON that can be passed on: {error}") from error
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        raise InvalidInput.of(error) from error


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
