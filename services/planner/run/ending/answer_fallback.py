"""Find an answer text where the model gave none: in its arguments, then in the last observation.

The search extracts text and never copies data. The placeholder or reference of an artifact does not count as text.
"""

import json
from collections.abc import Mapping
from typing import Any

from services.shared.redaction.json_values import plain
from services.shared.redaction.placeholders import is_placeholder
from services.shared.redaction.stored_values import as_reference

ANSWER_KEYS = (
    "raw_answer",
    "answer",
    "text",
    "result",
    "output",
    "response",
    "message",
    "content",
    "summary",
    "explanation",
    "description",
)
"""Keys that may hold the answer, in order of preference."""

MIN_REMARK_CHARACTERS = 10
_HIDDEN = object()


def text_in(value: Any, *, data: bool = True) -> str | None:
    """Return the answer text of an observation, in the order that docs/planner.md gives; None when it holds none.

    `data`: as a last resort, an observation without text is returned as JSON.
    """
    value = _without_artifacts(plain(value))
    if isinstance(value, Mapping):
        found = known_text(value) or remark_in(value)
        if found:
            return found
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, Mapping | list) and not data:
        return None
    return json.dumps(value, ensure_ascii=False) if value or isinstance(value, bool | int | float) else None


def known_text(value: Mapping[str, Any]) -> str | None:
    """Return the first text under an answer key, nested objects included."""
    return next((text for key in ANSWER_KEYS if (text := rendered(value.get(key)))), None)


def rendered(value: Any) -> str | None:
    """Return the value of an answer key as text.

    The value may be a text, a number, a list of texts, or an object with an answer key of its own.
    """
    if isinstance(value, str):
        return value if value.strip() and not is_placeholder(value) else None
    if isinstance(value, Mapping):
        return known_text(value)
    if isinstance(value, list):
        texts = [item for item in value if isinstance(item, str) and not is_placeholder(item)]
        return "\n".join(texts) if len(texts) == len(value) and any(text.strip() for text in texts) else None
    return None if value is None else json.dumps(value)


def remark_in(value: Mapping[str, Any]) -> str | None:
    """Return the only string longer than ten characters, here or in the object under an answer key."""
    texts = (text for text in value.values() if isinstance(text, str) and not is_placeholder(text))
    remarks = [text for text in texts if len(text) > MIN_REMARK_CHARACTERS and text.strip()]
    if len(remarks) == 1:
        return remarks[0]
    inner = (value[key] for key in ANSWER_KEYS if isinstance(value.get(key), Mapping))
    return None if remarks else next((text for part in inner if (text := remark_in(part))), None)


def _without_artifacts(value: Any) -> Any:
    kept = _visible(value)
    return None if kept is _HIDDEN else kept


def _visible(value: Any) -> Any:
    if is_placeholder(value) or as_reference(value) is not None:
        return _HIDDEN
    if isinstance(value, Mapping):
        return {key: part for key, item in value.items() if (part := _visible(item)) is not _HIDDEN}
    if isinstance(value, list):
        return [part for item in value if (part := _visible(item)) is not _HIDDEN]
    return value
