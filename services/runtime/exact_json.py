"""JSON as quick as orjson, and without its limits: integers beyond 64 bits are exact, and nesting may be deep.

orjson reads an integer beyond 64 bits as the nearest double, which is not what a tool returned or a person approved.
"""

import json
import re
from typing import Any

import orjson

_MAY_BE_LONG_INTEGER = re.compile(rb"[0-9]{19}")


def loads(data: bytes) -> Any:
    """Read JSON. Raises ValueError and RecursionError."""
    return (json.loads if _MAY_BE_LONG_INTEGER.search(data) else orjson.loads)(data)


def loads_strictly(data: bytes) -> Any:
    """Read JSON of a tool; NaN, infinite numbers and lone surrogates are refused. Raises as `loads`."""
    value = orjson.loads(data)
    return json.loads(data) if _MAY_BE_LONG_INTEGER.search(data) else value


def dumps(value: Any) -> bytes:
    """Write JSON. Raises ValueError, TypeError and RecursionError for what JSON cannot hold."""
    try:
        return orjson.dumps(value)
    except TypeError:  # An integer beyond 64 bits, or more than 254 levels, which orjson reads but does not write.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
