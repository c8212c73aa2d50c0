"""Reads values that models often write in another form: encoded as text, wrapped, or of another type."""

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from services.planner.replies.actions.names import STREAMED_KEYS
from services.planner.replies.actions.scan import Found, Scan
from services.planner.replies.strict_json import ANSWER_KEYS, MAX_DEPTH, loads_or

MAX_ENCODINGS = 2


def as_object(value: Any) -> dict[str, Any] | None:
    """Return an object: the value itself, or the one that its text encodes; None where there is none."""
    for _ in range(MAX_ENCODINGS):
        if isinstance(value, str):
            value = _decoded(value)
    return value if isinstance(value, dict) else None


def object_in(value: Any) -> dict[str, Any] | None:
    """The same as `as_object`, for a text that may hold the object in a code fence or in prose; None for several."""
    found = as_object(value)
    if found is not None or not isinstance(value, str) or "{" not in value:
        return found
    items = list(islice(Scan(value).items(), 2))
    only = items[0] if len(items) == 1 else None
    return only.value if isinstance(only, Found) and value[only.start] == "{" else None


def as_object_or_list(value: Any) -> dict[str, Any] | list[Any] | None:
    """The same as `as_object`, for places where a list is valid too."""
    value = _decoded(value) if isinstance(value, str) else value
    return value if isinstance(value, dict | list) else None


def _decoded(text: str) -> Any:
    return loads_or(text) if text.lstrip().startswith(("{", "[", '"')) else None


def pick_answer(fields: Mapping[str, Any]) -> Any:
    """Return the answer among several keys; None where there is none. A null does not count.

    The first of `answer` and `raw_answer` in the object wins, then `text`, `response`, `content`.
    """
    return next((fields[key] for key in answer_keys(fields)), None)


def answer_keys(fields: Mapping[str, Any]) -> list[str]:
    """Return the keys that hold an answer. The first one counts."""
    keys = [key for key in fields if key in STREAMED_KEYS] + list(ANSWER_KEYS[len(STREAMED_KEYS) :])
    return [key for key in keys if fields.get(key) is not None]


def answer_text(value: Any, *, known_only: bool = False) -> str | None:
    """Return an answer as text: a text, a number, a list of these (one per line), or an object with an answer key.

    Any other value becomes its JSON text, or None with `known_only`. Null and an empty list or object give None.
    """
    for _ in range(MAX_DEPTH):
        inner = pick_answer(value) if isinstance(value, dict) else None
        if inner is None:
            break
        value = inner
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _lines(value, known_only=known_only)
    if isinstance(value, int | float) or (value and not known_only):
        return json.dumps(value, ensure_ascii=False)
    return None


def _lines(items: list[Any], *, known_only: bool) -> str | None:
    """Return a list as lines. Its leading texts may be streamed already, so they stay at the beginning."""
    lines: list[str | None] = []
    for item in items:
        value = pick_answer(item) if isinstance(item, dict) else item
        is_number = isinstance(value, int | float)
        lines.append(value if isinstance(value, str) else json.dumps(value) if is_number else None)
    texts = [line for line in lines if line is not None]
    if texts and len(texts) == len(lines):
        return "\n".join(texts)
    if known_only or not items:
        return None
    if isinstance(items[0], str):
        return "\n".join(
            line if line is not None else json.dumps(item, ensure_ascii=False)
            for line, item in zip(lines, items, strict=True)
        )
    return json.dumps(items, ensure_ascii=False)
