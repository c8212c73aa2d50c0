"""What a run is to do, as a sentence in its question: the model server needs no state and answers any planner alike.

Every token of the answer holds the moment at which the model server made it (`time.monotonic_ns()`, one clock for all
processes of a Linux machine), so a client that reads it knows how old it is.
"""

import re
import time
from dataclasses import dataclass, field

from contracts.wire.names import new_id

_SENTENCE = "Run {key}: {calls} calls of {tool} with {call_ms} ms, then {tokens} tokens, one every {gap_ms} ms."
_NUMBER = r"(\d+)"
_READ = re.compile(
    _SENTENCE.format(key=r"(\w+)", calls=_NUMBER, tool=r"(\w+)", call_ms=_NUMBER, tokens=_NUMBER, gap_ms=_NUMBER)
)
TOKEN = re.compile(r"~(\d+);")


@dataclass(frozen=True)
class Script:
    """A run: so many calls of a tool, then an answer of so many tokens."""

    calls: int = 0
    call_ms: int = 0
    tokens: int = 1
    gap_ms: int = 0
    tool: str = "echo"
    key: str = field(default_factory=new_id)

    def question(self) -> str:
        """The question that holds it."""
        return _SENTENCE.format(**self.__dict__)

    def args(self, number: int) -> dict[str, object]:
        """The arguments of call `number`, from 0. Of `task`: a background task in the one group of the run."""
        if self.tool == "task":
            return {"mode": "subagent", "query": Script(tokens=self.tokens).question(), "group": "all"}
        args: dict[str, object] = {"key": self.key, "number": number, "pause_ms": self.call_ms}
        if self.tool == "waiting_task":
            return {"mode": "job", "tool": "guarded", "tool_args": args, "group_report": "none"}
        return args

    @property
    def node(self) -> str:
        """What the model decides for each call."""
        return "task" if self.tool == "waiting_task" else self.tool

    @staticmethod
    def of(text: str) -> "Script | None":
        """Read it back from a message; None when there is none."""
        found = _READ.search(text)
        if found is None:
            return None
        key, calls, tool, call_ms, tokens, gap_ms = found.groups()
        return Script(int(calls), int(call_ms), int(tokens), int(gap_ms), tool, key)


def token() -> str:
    """A token made now."""
    return f"~{time.monotonic_ns()};"
