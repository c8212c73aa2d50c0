"""`builtin/rehearsal`: a rule-based stand-in for a language model, so that a fresh checkout answers and tests repeat.

It reads the same prompt as any model and replies on the same wire: it chooses a tool by the words of the question, fills the arguments
from the question and the schema, never from thin air, answers from what the tool returned, and says in `warnings` what it is.
Deterministic; no I/O; knows no tool by name.
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
    """Cut a text into the small pieces in which a model would say it."""
    yield from _PIECE.findall(text)
