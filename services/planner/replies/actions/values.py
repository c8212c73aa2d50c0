"""Reads values that models often write in another form: encoded as text, wrapped, or of another type."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from services.planner.replies.actions.names import STREAMED_KEYS
from services.planner.replies.strict_json import ANSWER_KEYS, MAX_DEPTH, NotJson, loads_leniently, mend

MAX_ENCODINGS = 2
MAX_VALUES = 200_000
MAX_INTEGER_BITS = 3000


def as_object(value: Any) -> dict[str, Any] | None:
    """Return an object: the value itself, or the one that its text encodes; None where there is none."""
    for _ in range(MAX_ENCODINGS):
        if isinstance(value, str):
            value = _decoded(value)
    return value if isinstance(value, dict) else None


def as_object_or_list(value: Any) -> dict[str, Any] | list[Any] | None:
    """The same as `as_object`, for places where a list is valid too."""
    value = _decoded(value) if isinstance(value, str) else value
    return value if isinstance(value, dict | list) else None


def _decoded(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[", '"')):
        return None
    try:
        return loads_leniently(text)
    except NotJson:
        return None


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
    lines = [_line(item) for item in items]
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


def _line(item: Any) -> str | None:
    if isinstance(item, dict):
        item = pick_answer(item)
    if isinstance(item, str):
        return item
    return json.dumps(item) if isinstance(item, int | float) else None


def plain(value: Any) -> Any:
    """Return a copy of a parsed value in plain JSON types.

    Raises:
        NotJson: it is no JSON (other types, NaN, keys that are not texts), or too deep or too large.
    """
    return _Copy().of(value, 0)


class _Copy:
    """Copies values and counts them: a structure with shared parts may grow exponentially when copied."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def of(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise NotJson("the object is too deep or too large", 0)
        if isinstance(value, str):
            return mend(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int) and value.bit_length() <= MAX_INTEGER_BITS:
            return int(value)
        if isinstance(value, float) and value - value == 0:
            return value
        if isinstance(value, Mapping):
            return {self._key(key): self.of(item, depth + 1) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
            return [self.of(item, depth + 1) for item in value]
        raise NotJson(f"the object holds what JSON has not ({type(value).__name__})", 0)

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise NotJson(f"a key is no text ({type(key).__name__})", 0)
        return mend(key)
