"""Placeholders: the text that replaces an artifact in the model's context, `<artifact:dict size=42KB>`.

A placeholder shows type and size, never the content. Redaction is idempotent: a placeholder in place of an annotated
value is not changed.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

from contracts.artifacts.references import ArtifactRef

_KB = 1024
_MB = 1024 * 1024
_STREAM_ID_CHARACTERS = 64
_PLACEHOLDER = re.compile(r"<artifact:\w{1,32}(?: (?:size=\d[\d.]*(?:B|KB|MB| items)|stream=[\w.:/@+-]{1,64}))?>")
_UNSAFE_IN_STREAM_ID = re.compile(r"[^\w.:/@+-]")
_EXACT_BITS = 4096
_SCALARS = frozenset({"int", "float", "bool"})


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
