"""JSON as the model sees it: on one line, without blanks."""

import json
from typing import Any

import orjson


def compact(value: Any) -> str:
    """Any value as JSON; what JSON has not becomes a text, integers keep all their digits. Never raises."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # An integer beyond 64 bits, or a lone surrogate.
        return json.dumps(value, default=str, separators=(",", ":"))
