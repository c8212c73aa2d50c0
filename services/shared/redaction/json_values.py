"""JSON values: their sizes, plain copies of bounded depth, the canonical form, cut texts, placeholders of hidden ones.

A placeholder, `<artifact:dict size=42KB>`, replaces an artifact in the model's context. It shows type and size, never
the content. Redaction is idempotent: a placeholder in place of an annotated value is not changed.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import rfc8785

from contracts.artifacts import ArtifactRef

_KB = 1024
_MB = 1024 * 1024
_STREAM_ID_CHARACTERS = 64
_PLACEHOLDER = re.compile(r"<artifact:\w{1,32}(?: (?:size=\d[\d.]*(?:B|KB|MB| items)|stream=[\w.:/@+-]{1,64}))?>")
_UNSAFE_IN_STREAM_ID = re.compile(r"[^\w.:/@+-]")
_EXACT_BITS = 4096
_SCALARS = frozenset({"int", "float", "bool"})
WIRE_DEPTH = 32
"""Levels of nesting that are kept; readers in other languages accept more."""


def placeholder(value: Any, *, stream: str | None = None) -> str:
    """Return the placeholder of a hidden value. `stream`: the id of the stream that showed it."""
    kind = json_type(value)
    items = len(value) if kind == "list" else None
    return _describe(kind, items, None if kind in _SCALARS or kind == "list" or stream else stored_size(value), stream)


def placeholder_of(ref: ArtifactRef, *, stream: str | None = None) -> str:
    """Return the placeholder of an artifact from its reference, equal to that of its value."""
    return _describe(ref.json_type or "bytes", ref.items, ref.size, stream)


def is_placeholder(value: Any) -> bool:
    """Return whether a value is exactly a placeholder."""
    return isinstance(value, str) and value.startswith("<artifact:") and _PLACEHOLDER.fullmatch(value) is not None


def json_type(value: Any) -> str:
    """Return the type of a value, as in `ArtifactRef.json_type`: dict, list, str, int, float, bool, bytes."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Mapping):
        return "dict"
    if isinstance(value, list | tuple):
        return "list"
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes"
    for known in (str, int, float):
        if isinstance(value, known):
            return known.__name__
    return re.sub(r"\W", "_", type(value).__name__)[:32]


def stored_size(value: Any) -> int:
    """Return the stored size of a value in bytes: text as UTF-8, bytes as they are, others as compact UTF-8 JSON."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes | bytearray | memoryview):
        return memoryview(value).nbytes
    return wire_size(value)


def wire_size(value: Any) -> int:
    """Return the size of a value in a message, in bytes: compact UTF-8 JSON, with bytes as base64. Never raises."""
    try:
        return len(orjson.dumps(value))
    except (TypeError, ValueError):  # bytes, a lone surrogate, an integer above 64 bits, or nested more than 254 deep
        pass
    try:  # A large result with one long integer has to be measured quickly, too.
        return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    except (TypeError, ValueError, RecursionError):
        return _counted_size(value)


def declared_bytes(text: str) -> bytes | None:
    """Return the bytes of a text that its schema calls binary; None if it is not canonical base64 (either alphabet)."""
    others = b"-_" if "-" in text or "_" in text else b"+/"
    try:
        raw = base64.b64decode(text, altchars=others, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if base64.b64encode(raw, others).decode() == text else None


def _describe(kind: str, items: int | None, size: int | None, stream: str | None) -> str:
    if stream:
        return f"<artifact:{kind} stream={_UNSAFE_IN_STREAM_ID.sub('_', stream)[:_STREAM_ID_CHARACTERS]}>"
    if kind in _SCALARS:
        return f"<artifact:{kind}>"
    if items is not None:
        return f"<artifact:{kind} size={items} items>"
    size = size or 0
    readable = f"{size}B" if size < _KB else f"{round(size / _KB)}KB" if size < _MB else f"{size / _MB:.1f}MB"
    return f"<artifact:{kind} size={readable}>"


def _counted_size(value: Any) -> int:
    """Compute the size without encoding and without recursion, so that no depth exhausts the stack."""
    total = 0
    open_values = [value]
    while open_values:
        item = open_values.pop()
        if isinstance(item, Mapping):
            total += 2 + max(2 * len(item) - 1, 0) + sum(_text_size(str(key)) for key in item)
            open_values.extend(item.values())
        elif isinstance(item, list | tuple):
            total += 2 + max(len(item) - 1, 0)
            open_values.extend(item)
        elif isinstance(item, str):
            total += _text_size(item)
        elif isinstance(item, bytes | bytearray | memoryview):
            total += 2 + 4 * -(-memoryview(item).nbytes // 3)
        else:
            is_long = isinstance(item, int) and item.bit_length() > _EXACT_BITS  # Python refuses to write such numbers.
            total += item.bit_length() * 3 // 10 if is_long else len(json.dumps(item, default=str))
    return total


def _text_size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))


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
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return well_formed(str(value))


def strings_in(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, those of keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from strings_in(each)


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
