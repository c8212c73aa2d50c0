"""`builtin/rehearsal`: the demo model, which replies by rules, so that a fresh checkout answers and tests repeat.

It reads the same prompt as any model, and replies in the same form. It chooses a tool by the words of the question,
fills the arguments from the question and the schema only, answers from the tool's result, and names itself in
`warnings`. Deterministic; no I/O; no rule names a tool.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from services.planner.models.demo.acting import NAME, WARNING, Act, act
from services.planner.models.demo.reading import read

__all__ = ["NAME", "PROVIDER", "WARNING", "Act", "pieces", "play"]

PROVIDER = NAME.partition("/")[0]

_PIECE = re.compile(r"\s*\S{1,8}|\s+$")


def play(messages: Sequence[dict[str, Any]]) -> Act:
    """Reply to a conversation: reasoning, and the text of one action."""
    return act(read(messages))


def pieces(text: str) -> Iterator[str]:
    """Split a text into small pieces, like the deltas of a model."""
    yield from _PIECE.findall(text)
