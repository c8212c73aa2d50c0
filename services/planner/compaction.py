"""Make a conversation shorter without losing the facts of a step: what was called, with what, and what came of it. Pure.

Long lines of older messages lose their middle; the question and the newest exchange stay as they are. Compacting is itself a fact of the
run (`compacted`), so that every planner that folds the log sees the same conversation.
"""

from typing import Any

_HEAD = 0.7
_KEPT_AT_END = 2
"""Messages of the newest exchange: the last decision and its results."""
_MARK = " …[shortened]… "


def length(message: dict[str, Any]) -> int:
    """Characters of a message's text."""
    content = message["content"]
    return len(content) if isinstance(content, str) else sum(len(part.get("text", "")) for part in content)


def compacted(history: list[dict[str, Any]], line_characters: int) -> list[dict[str, Any]]:
    """Return the conversation with every line of its middle cut to about `line_characters`."""
    first, middle, last = history[:1], history[1:-_KEPT_AT_END], history[1:][-_KEPT_AT_END:]
    return [*first, *(_shortened(message, line_characters) for message in middle), *last]


def _shortened(message: dict[str, Any], limit: int) -> dict[str, Any]:
    if not isinstance(message["content"], str) or len(message["content"]) <= limit:
        return message
    lines = (_line(line, limit) for line in message["content"].split("\n"))
    return {**message, "content": "\n".join(lines)}


def _line(line: str, limit: int) -> str:
    if len(line) <= limit + len(_MARK):
        return line
    head = int(limit * _HEAD)
    return f"{line[:head]}{_MARK}{line[-(limit - head) :]}"
