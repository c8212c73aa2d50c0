"""Check values against JSON Schemas that others wrote. Offline: a reference to another document is refused, never fetched."""

import json
from functools import lru_cache
from typing import Any

import jsonschema_rs
import orjson

_MAX_COMPLAINTS = 5
_MAX_SHOWN = 300


class InvalidSchema(ValueError):
    """A JSON Schema cannot be used: it says why."""


def _refuse(uri: str) -> Any:
    raise InvalidSchema(f"the reference {uri!r} points to another document; put it under $defs")


@lru_cache(maxsize=4096)
def _validator(schema: bytes, mask: str | None = None) -> Any:
    try:
        return jsonschema_rs.Draft202012Validator(json.loads(schema), retriever=_refuse, validate_formats=False, mask=mask)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(str(error)[:_MAX_SHOWN]) from error


def check_schema(schema: dict[str, Any]) -> None:
    """Raise InvalidSchema when `schema` is no usable JSON Schema (draft 2020-12)."""
    _validator(_packed(schema))


def _packed(schema: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(schema)
    except TypeError:  # An integer beyond 64 bits, or more depth than it takes.
        pass
    try:
        return json.dumps(schema).encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise InvalidSchema(str(error)[:_MAX_SHOWN]) from error


def complaints(value: Any, schema: dict[str, Any], *, masked: bool = False) -> list[str]:
    """Return what is wrong with `value`, one sentence per fault with its path, at most five; empty when it fits. Raises InvalidSchema.

    `masked`: the sentences quote no values. Ask for it where the value did not come from the reader: a result may hold what the
    model may not see.
    """
    return _first(_validator(_packed(schema), "the value" if masked else None), value)


def _first(validator: Any, value: Any) -> list[str]:
    found = []
    for error in validator.iter_errors(value):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path).lstrip(".")
        message = error.message if len(error.message) <= _MAX_SHOWN else error.message[:_MAX_SHOWN] + "…"
        found.append(f"{path}: {message}" if path else message)
        if len(found) == _MAX_COMPLAINTS:
            break
    return found
