"""Canonical JSON (RFC 8785), of which digests are made.

An integer beyond 2^53, which RFC 8785 leaves out because no double holds it, is written with all its digits.
"""

from typing import Any

import rfc8785


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
