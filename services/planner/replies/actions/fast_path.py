"""The quick way for an honest reply: one object of strict JSON is read by jiter, which says no to keys that come twice.

What it gives is what `strict_json.Reader` gives, in a twentieth of the time. Whatever is not plainly right (another
dialect, a number without end, half a surrogate pair, too deep a nesting) is left to the Reader, which alone says what
is wrong and where.
"""

from typing import Any

import jiter

from services.planner.replies.strict_json import MAX_DEPTH, MAX_DIGITS

MAX_INTEGER = 10**MAX_DIGITS
_HARMLESS = frozenset({str, bool, type(None)})
_AS_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
MANY_DIGITS = b"0" * 300
FEW_MEMBERS, SHORT_BYTES, LONG_BYTES = 50, 1000, 10_000
MAX_CONTAINERS = 50_000
"""Containers and keys. jiter lets nobody else run meanwhile, and takes a tenth of a second for a megabyte of `{}`."""
WRAPPER_LEVELS = 201 - MAX_DEPTH
"""jiter reads 201 levels: with so many around it, an object has as many left as may be, or one less."""


def well_formed_object(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """The object that begins at `start` and ends with the last brace of the text, and its end; None where the Reader has to look."""
    end = text.rfind("}") + 1
    if end <= start:
        return None
    try:
        data = text[start:end].encode()
        if len(data) > LONG_BYTES and data.count(b"{") + data.count(b"[") + data.count(b'":') > MAX_CONTAINERS:
            return None
        value = _read(data)
    except ValueError:
        return None
    return (value, end) if isinstance(value, dict) and (_is_modest(data) or _is_sane(value)) else None


def _read(data: bytes) -> Any:
    if len(data) < LONG_BYTES:
        return jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    # To look for too deep a nesting in what was read would take as long as to read it.
    value = jiter.from_json(
        b"[" * WRAPPER_LEVELS + data + b"]" * WRAPPER_LEVELS, allow_inf_nan=False, catch_duplicate_keys=True
    )
    for _ in range(WRAPPER_LEVELS):
        if len(value) != 1:
            return None
        value = value[0]
    return value


def _is_modest(data: bytes) -> bool:
    """Whether what was read cannot hold too deep a nesting or an endless number: few containers, no exponents, no hundreds of digits.

    Of a text that seems to have few members for its length it says nothing: to look at their values is sooner done than
    at every character.
    """
    if len(data) > SHORT_BYTES and data.count(b":", 0, 2 * SHORT_BYTES) < FEW_MEMBERS:
        return False
    if len(data) < LONG_BYTES and data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        return False
    digits = data.translate(_AS_DIGITS)
    return b"0e" not in digits and MANY_DIGITS not in digits


def _is_sane(value: dict[str, Any]) -> bool:
    """Whether its numbers are finite and not too long, and no more containers stand inside each other than may."""
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
