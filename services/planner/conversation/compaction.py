"""Shortens a conversation, and keeps the facts of each step: the calls, their arguments, their outcomes. Pure.

Long lines of older messages lose their middle, and older results lose their images. The question stays unchanged. So
does the newest exchange, unless the provider reported a context overflow. A compaction is recorded (`compacted`), so
that every planner that folds the log renders the same conversation.
"""

import json
from typing import Any

from services.planner.conversation import images

OPAQUE = "opaque"
"""Key of a message with what its provider wants to see again, which is kept whole. It must not leave the planner under
this name."""
HEAD_SHARE = 0.7
NEWEST_LINE_FACTOR = 10
"""Lines of the newest exchange may be longer than older ones by this factor."""
CUT_MARKER = " …[shortened]… "


def length(message: dict[str, Any]) -> int:
    """Characters of a message's text, and of the arguments of its calls."""
    content = message.get("content", "")
    parts = [content] if isinstance(content, str) else [part.get("text") for part in content]
    text = sum(images.CHARACTERS_PER_IMAGE if part is None else len(part) for part in parts)
    opaque = message.get(OPAQUE, {}).get("message", {}).values()
    text += sum(len(value) for value in opaque if isinstance(value, str))
    return text + sum(len(call["function"]["arguments"]) for call in message.get("tool_calls", ()))


def compacted(
    history: list[dict[str, Any]], line_characters: int, *, newest: bool = False, question: int = 0
) -> list[dict[str, Any]]:
    """Return the conversation with the lines of its middle cut to about `line_characters`.

    `newest`: the lines of its newest exchange are cut too, to ten times that. `question`: the number of messages before
    the question, which are past turns. Their lines are cut too.
    """
    decided = [number for number, message in enumerate(history) if message["role"] == "assistant" and number > question]
    begins = max(decided, default=question + 1)
    last = history[begins:]
    if newest:
        last = [_shortened(message, NEWEST_LINE_FACTOR * line_characters) for message in last]
    older = [
        message if number == question else _shortened(message, line_characters)
        for number, message in enumerate(history[:begins])
    ]
    return [*older, *last]


def _shortened(message: dict[str, Any], limit: int) -> dict[str, Any]:
    if length(message) <= limit:
        return message
    short = dict(message)
    if isinstance(message.get("content"), str):
        short["content"] = _cut_lines(message["content"], limit)
    elif "content" in message:
        short["content"] = "\n".join(
            _cut_lines(part.get("text", images.LEFT_OUT), limit) for part in message["content"]
        )
    if "tool_calls" in message:
        short["tool_calls"] = calls = []
        for call in message["tool_calls"]:
            arguments = call["function"]["arguments"]
            if len(arguments) > limit + len(CUT_MARKER):  # They stay JSON, since providers check that.
                arguments = json.dumps({"shortened": middle_cut(arguments, limit)}, ensure_ascii=False)
            calls.append({**call, "function": {**call["function"], "arguments": arguments}})
    return short


def _cut_lines(text: str, limit: int) -> str:
    return "\n".join(middle_cut(line, limit) for line in text.split("\n"))


def middle_cut(line: str, limit: int) -> str:
    """Return about `limit` characters of a line: its beginning, a mark, and its end."""
    if len(line) <= limit + len(CUT_MARKER):
        return line
    head = int(limit * HEAD_SHARE)
    return f"{line[:head]}{CUT_MARKER}{line[-(limit - head) :]}"
