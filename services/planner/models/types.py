"""The data that the planner and a model exchange, and what the end of a reply means.

Rule 1: a finish reason that is in no row means what a word in it says (`WORDS`), and without such a word that the reply
is whole: servers invent names for ordinary ends. Case and punctuation do not matter.
Rule 2: without a reason, the end of the protocol counts: `[DONE]`, or a completion that was sent whole.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from contracts.runs.events import Repaired
from contracts.runs.pages import PageView
from contracts.runs.payload import Usage
from contracts.runs.step_events import Opaque
from contracts.tools.messages import ToolSpec
from services.planner.conversation.encoding import Messages
from services.planner.run.state.history import Item

Ending = Literal["whole", "limit", "filtered", "broken"]
"""`limit`: cut at the output limit, so the same request may be cut again. `filtered`: cut by the provider's filter.
`broken`: cut by a fault, so the same request may be answered whole."""

ENDINGS: dict[str, Ending] = {
    "error_toxic": "filtered",  # Cohere
    "insufficient_system_resource": "broken",  # DeepSeek
    "repetition_truncation": "broken",  # DeepSeek
    # Gemini
    **dict.fromkeys(("recitation", "prohibited_content", "spii", "language"), "filtered"),
    **dict.fromkeys(("malformed_function_call", "malformed_response", "other"), "broken"),
}
"""Finish reason, in lower case, with `_` between words -> meaning: those that `WORDS` does not read rightly."""
WORDS: tuple[tuple[re.Pattern[str], Ending], ...] = (
    (re.compile(r"max_.*(?:tokens|length)|length|(?<!rate_)limit|truncat|exceed|out_of_tokens|incomplete"), "limit"),
    (re.compile(r"filter|safety|sensitive|moderat|block|policy|guardrail|refus"), "filtered"),
    (re.compile(r"error|fail|rate_limit|abort|cancel|timeout|time_out|interrupt|overload|preempt|terminat"), "broken"),
)
"""Words in all others, such as `length`, `max_new_tokens`, `content_filter`, `imageSafety` and `server_error`."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_PUNCTUATION = re.compile(r"[\W_]+")


def ending_of(finish_reason: str | None, *, is_ended: bool) -> Ending:
    """Return what a reply's end means. `is_ended`: the protocol's own end has come."""
    if finish_reason is None:
        return "whole" if is_ended else "broken"
    reason = _PUNCTUATION.sub("_", _CAMEL.sub("_", finish_reason)).strip("_").lower()
    by_word: Ending = next((ending for word, ending in WORDS if word.search(reason)), "whole")
    return ENDINGS.get(reason, by_word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The content of a request as data, for the demo model, which works by rules. It is not sent to providers."""

    history: Sequence[Item]
    """It grows with the run: read it when the request is sent. Empty if the run cannot call the demo model."""
    rejected: tuple[Repaired, ...] = ()
    """Replies of this turn that were not accepted."""
    tools: Sequence[ToolSpec] = ()
    steps_left: int = 1
    """Decisions, this one included."""
    tool_calls_left: int | None = None
    """None: any number."""
    text_alone: bool = False
    """The reply is to be the answer's text, without an action around it."""
    tasks_allowed: bool = False
    legacy: bool = False
    page: PageView | None = None
    """Of a chat turn: what the page shows."""
    stage: str = ""
    """Of the strategy `planned`: `plan` or `respond`. Empty: the run has another strategy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to a model, in the shape of a chat completion.

    `timeout_s` limits idle time, `total_s` the whole reply.
    """

    model: str
    messages: Messages
    reasoning_effort: str | None = None
    max_tokens: int | None = None
    asks_usage: bool = True
    """Whether the stream is to end with the usage."""
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | None = None
    timeout_s: float = 120.0
    total_s: float | None = None
    facts: Facts | None = None


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A part of a native tool call: its index, and the text to append to its name and to its JSON arguments."""

    index: int
    name: str
    arguments: str


@dataclass(slots=True)  # To freeze it would double what a chunk costs here.
class Delta:
    """A part of a reply: of its text, of the model's native reasoning, or of a native tool call."""

    text: str = ""
    reasoning: str = ""
    call: CallPiece | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete reply: the concatenation of its deltas, and its usage.

    `finish_reason`: the provider's; None if it gave none. `ending`: what the end of the reply means. `tool_calls`:
    native calls in OpenAI's form, with the arguments as text. `warnings`: what of the request was left out.
    `opaque`: what the provider wants to see again with the calls.
    """

    text: str
    reasoning: str | None = None
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None
    ending: Ending = "whole"
    model: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    opaque: Opaque | None = None


class Model(Protocol):
    """A language model."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Send one request. Yield the reply's deltas and, last, when the request is closed, the Reply.

        `aclose()` of the generator closes the request at once. Raises ModelFailed.
        """
        ...
