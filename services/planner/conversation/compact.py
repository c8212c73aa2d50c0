"""JSON on one line, without blanks, as models receive it."""

import json
from typing import Any

import orjson


def compact(value: Any) -> str:
    """Render any value as JSON. Types without a JSON form become text; integers keep all digits. Never raises."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # An integer beyond 64 bits, or a lone surrogate.
        return json.dumps(value, default=str, separators=(",", ":"))
