r"""The fast path for a well-formed reply: jiter reads one object of strict JSON, and refuses repeated keys.

The result equals that of `strict_json.Reader`, in a twentieth of the time. Everything else (another dialect, an
infinite number, half a surrogate pair, too deep nesting, `\f` before a letter) is left to the Reader, which names fault
and position.
"""

import re
from typing import Any

import jiter

from services.planner.replies.strict_json import MAX_DEPTH, MAX_DIGITS

MAX_INTEGER = 10**MAX_DIGITS
_HARMLESS = frozenset({str, bool, type(None)})
_AS_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
MANY_DIGITS = b"0" * 300
FEW_MEMBERS, SHORT_BYTES, LONG_BYTES = 50, 1000, 10_000
_NO_CONTROL = re.compile(rb"(?<!\\)(?>\\\\)*+\\[bf][A-Za-z]{2}")
MAX_CONTAINERS = 50_000
"""Containers and keys. jiter blocks all other threads, and takes a tenth of a second for a megabyte of `{}`."""
WRAPPER_LEVELS = 201 - MAX_DEPTH
"""jiter reads 201 levels. With so many wrappers around it, an object can use MAX_DEPTH levels, or one less."""


def well_formed_object(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """Return the object from `start` to the last brace of the text, and its end.

    None: the Reader must decide.
    """
    end = text.rfind("}") + 1
    if end <= start:
        return None
    try:
        data = text[start:end].encode()
        if len(data) > LONG_BYTES and data.count(b"{") + data.count(b"[") + data.count(b'":') > MAX_CONTAINERS:
            return None
        if (b"\\f" in data or b"\\b" in data) and _NO_CONTROL.search(data):
            return None
        value = _read(data)
    except ValueError:
        return None
    return (value, end) if isinstance(value, dict) and (_is_modest(data) or _is_sane(value)) else None


def _read(data: bytes) -> Any:
    if len(data) < LONG_BYTES:
        return jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    # Searching the result for too deep nesting would take as long as reading it.
    value = jiter.from_json(
        b"[" * WRAPPER_LEVELS + data + b"]" * WRAPPER_LEVELS, allow_inf_nan=False, catch_duplicate_keys=True
    )
    for _ in range(WRAPPER_LEVELS):
        if len(value) != 1:
            return None
        value = value[0]
    return value


def _is_modest(data: bytes) -> bool:
    """Whether the text cannot hold too deep nesting or an infinite number.

    True for few containers, no exponents and no hundreds of digits. False also for a long text with few members:
    checking its values is faster than checking each of its characters.
    """
    if len(data) > SHORT_BYTES and data.count(b":", 0, 2 * SHORT_BYTES) < FEW_MEMBERS:
        return False
    if len(data) < LONG_BYTES and data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        return False
    digits = data.translate(_AS_DIGITS)
    return b"0e" not in digits and MANY_DIGITS not in digits


def _is_sane(value: dict[str, Any]) -> bool:
    """Whether all numbers are finite and short enough, and the nesting is within MAX_DEPTH."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = []
        for box in level:
            for item in box.values() if type(box) is dict else box:
                kind = type(item)
                if kind in _HARMLESS:
                    continue
                if kind is dict or kind is list:
                    inner.append(item)
                elif item - item != 0 if kind is float else not -MAX_INTEGER < item < MAX_INTEGER:
                    return False
        if not inner:
            return True
        level = inner
    return False
