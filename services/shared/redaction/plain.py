"""Convert values of models and tools to JSON for the wire, of bounded depth, so that every reader can parse it."""

import base64
import math
from collections.abc import Mapping
from typing import Any

WIRE_DEPTH = 32
"""Levels of nesting that are kept; readers in other languages accept more."""


def well_formed(text: str) -> str:
    """Return text that UTF-8 can encode: a surrogate pair becomes its character, a lone surrogate U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def plain(value: Any, depth: int = WIRE_DEPTH) -> Any:
    """Return a copy as JSON: bytes as base64, NaN and infinities as null, values deeper than `depth` as null."""
    if isinstance(value, Mapping):
        return {well_formed(str(key)): plain(item, depth - 1) for key, item in value.items()} if depth else None
    if isinstance(value, list | tuple):
        return [plain(item, depth - 1) for item in value] if depth else None
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return well_formed(str(value))
