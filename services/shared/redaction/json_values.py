"""JSON values for the wire and for digests: plain copies of bounded depth, the canonical form, and cut texts."""

import base64
import math
from collections.abc import Iterator, Mapping
from typing import Any

import rfc8785

from services.shared.redaction.placeholders import wire_size

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


def strings_in(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, those of keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from strings_in(each)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return well_formed(str(value))


def canonical_json(value: Any) -> bytes:
    """Return a JSON value in its one form. Raises ValueError for what is no JSON, such as infinity."""
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        return _of_any_size(value)


def _of_any_size(value: Any) -> bytes:
    match value:
        case dict():
            keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
            return b"{" + b",".join(rfc8785.dumps(key) + b":" + _of_any_size(value[key]) for key in keys) + b"}"
        case list():
            return b"[" + b",".join(map(_of_any_size, value)) + b"]"
        case bool():
            return rfc8785.dumps(value)
        case int():
            return str(value).encode()
        case _:
            return rfc8785.dumps(value)


CUT_MARK = " […]"


def cut(text: str, limit: int) -> str:
    """Return at most `limit` bytes of a text, with a mark where it was cut."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text
    room = limit - len(CUT_MARK.encode())
    return data[:room].decode("utf-8", "ignore") + CUT_MARK if room > 0 else ""


def json_size(text: str) -> int:
    """Return the size of a text as JSON, without its quotation marks, in bytes."""
    return wire_size(text) - 2


def cut_together(texts: Mapping[str, str], limit: int) -> dict[str, str]:
    """Cut the longest texts to the same size, so that all together have at most `limit` bytes as JSON."""
    sizes = sorted(map(json_size, texts.values()))
    left = limit
    for position, size in enumerate(sizes):
        share = left // (len(sizes) - position)
        if size > share:
            return {key: _cut_as_json(text, share) for key, text in texts.items()}
        left -= size
    return dict(texts)


def _cut_as_json(text: str, limit: int) -> str:
    found, room = text, limit
    while (size := json_size(found)) > limit:
        found = cut(text, room)
        room = min(room - 1, room * limit // size)
    return found
