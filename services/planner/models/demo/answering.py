"""Turns the results of tools into sentences."""

import re
from typing import Any

from services.planner.conversation.encoding import compact
from services.planner.models.demo.situation import Tried

_ANSWER_KEYS = """raw_answer answer summary result text message content output response description explanation value"""
_EXPRESSION_KEYS = ("expression", "expr", "formula", "calculation", "equation")
_TITLES = ("title", "name", "heading", "source", "file", "path", "url", "id")
_BODIES = ("snippet", "text", "content", "passage", "summary", "excerpt", "description", "answer", "value")
_ARTIFACT = re.compile(r"<artifact:[^>]*>")
_LONGEST = 2_000
_LISTED = 5
MAX_DEPTH = 4
MAX_EXACT_INTEGER = 1e15


def tell(tried: Tried) -> str:
    """Return the result of a successful call as an answer."""
    value = _number(tried.observation)
    expression = next((tried.args[key] for key in _EXPRESSION_KEYS if isinstance(tried.args.get(key), str)), None)
    if value is not None and expression:
        return f"{expression} = {value}"
    text = _shorten(_say(tried.observation, 0).strip())
    return text or f"{tried.tool} returned nothing."


def _number(observation: Any) -> str | None:
    if isinstance(observation, dict):
        observation = next(
            (observation[key] for key in ("result", "value", "answer", "output") if key in observation), None
        )
    if isinstance(observation, bool) or not isinstance(observation, int | float | str):
        return None
    if isinstance(observation, str):
        return (
            observation if re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", observation.strip(), re.IGNORECASE) else None
        )
    is_exact_integer = float(observation).is_integer() and abs(observation) < MAX_EXACT_INTEGER
    return str(int(observation)) if is_exact_integer else repr(observation)


def _say(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return _ARTIFACT.sub("(attached)", value)
    if isinstance(value, dict) and depth < MAX_DEPTH:
        return _say_object(value, depth)
    if isinstance(value, list) and depth < MAX_DEPTH:
        return _say_list(value, depth)
    return "" if value is None else compact(value)


def _say_object(value: dict[str, Any], depth: int) -> str:
    for key in _ANSWER_KEYS.split():
        inner = value.get(key)
        if isinstance(inner, str) and inner.strip() and not _ARTIFACT.fullmatch(inner):
            return _say(inner, depth + 1) + _attached(value)
        if isinstance(inner, dict | list | int | float) and inner not in ({}, []) and not isinstance(inner, bool):
            return _say(inner, depth + 1) + _attached(value)
    rows = next(
        (inner for inner in value.values() if isinstance(inner, list) and inner and isinstance(inner[0], dict)), None
    )
    if rows is not None and any(key in rows[0] for key in _BODIES):
        return _say_list(rows, depth)
    lines = [
        f"{key.replace('_', ' ')}: {_brief(inner)}"
        for key, inner in value.items()
        if inner is not None and not _is_artifact(inner)
    ]
    return "\n".join(lines) + _attached(value)


def _say_list(value: list[Any], depth: int) -> str:
    lines = []
    for item in value[:_LISTED]:
        title = next((str(item[key]) for key in _TITLES if item.get(key)), "") if isinstance(item, dict) else ""
        body = next((str(item[key]) for key in _BODIES if item.get(key)), "") if isinstance(item, dict) else ""
        lines.append(": ".join(part for part in (title, body) if part) or _say(item, depth + 1).replace("\n", ", "))
    if len(value) == 1:
        return lines[0]
    more = [f"… and {len(value) - _LISTED} more"] if len(value) > _LISTED else []
    return "\n".join([f"- {line}" for line in lines] + more)


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)


def _is_artifact(value: Any) -> bool:
    return isinstance(value, str) and bool(_ARTIFACT.fullmatch(value))


def _attached(value: dict[str, Any]) -> str:
    names = [key.replace("_", " ") for key, inner in value.items() if _is_artifact(inner)]
    return f"\nAttached: {', '.join(names)}." if names else ""


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST].rstrip() + " …"
