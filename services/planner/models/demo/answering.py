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
_MAX_CHARACTERS = 2_000
_LISTED = 5
MAX_DEPTH = 4


def tell(tried: Tried) -> str:
    """Return the result of a call as an answer, or say why it failed."""
    if tried.reason is not None:
        return f"{tried.tool} failed: {tried.reason}"
    number = tried.observation
    if isinstance(number, dict):
        number = next((number[key] for key in ("result", "value", "answer", "output") if key in number), None)
    expression = next((tried.args[key] for key in _EXPRESSION_KEYS if isinstance(tried.args.get(key), str)), None)
    if expression and not isinstance(number, bool):
        if isinstance(number, int | float):
            return f"{expression} = {compact(int(number) if number % 1 == 0 else number)}"
        if isinstance(number, str) and re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", number.strip(), re.IGNORECASE):
            return f"{expression} = {number}"
    text = _say(tried.observation, 0).strip()
    return (text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS].rstrip() + " …") or (
        f"{tried.tool} returned nothing."
    )


def _say(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return _ARTIFACT.sub("(attached)", value)
    if isinstance(value, dict) and depth < MAX_DEPTH:
        return _say_object(value, depth)
    if isinstance(value, list) and depth < MAX_DEPTH:
        return _say_list(value, depth)
    return "" if value is None else compact(value)


def _say_object(value: dict[str, Any], depth: int) -> str:
    artifacts = [key for key, inner in value.items() if isinstance(inner, str) and _ARTIFACT.fullmatch(inner)]
    attached = f"\nAttached: {', '.join(key.replace('_', ' ') for key in artifacts)}." if artifacts else ""
    shown = {key: inner for key, inner in value.items() if inner is not None and key not in artifacts}
    for key in _ANSWER_KEYS.split():
        inner = shown.get(key)
        if inner not in (None, "", {}, []) and not isinstance(inner, bool):
            return _say(inner, depth + 1) + attached
    rows = next((inner for inner in shown.values() if isinstance(inner, list) and inner), [])
    if rows and isinstance(rows[0], dict) and any(key in rows[0] for key in _BODIES):
        return _say_list(rows, depth)
    lines = [
        f"{key.replace('_', ' ')}: {inner if isinstance(inner, str) else compact(inner)}"
        for key, inner in shown.items()
    ]
    return "\n".join(lines) + attached


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
