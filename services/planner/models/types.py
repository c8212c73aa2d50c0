"""The words between the planner and a model."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Protocol

from contracts.payload import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model, in the shape of a chat completion.

    `timeout_s` bounds silence, `total_s` the whole reply. `fallbacks` are asked in order when `model` fails; None: the deployment's.
    """

    model: str
    messages: list[dict[str, Any]]
    reasoning_effort: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | None = None
    timeout_s: float = 120.0
    total_s: float | None = None
    fallbacks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a native tool call: which one, and what is added to its name and to its arguments, a JSON text."""

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply as it comes: of its text, of the model's native reasoning, or of a native tool call."""

    text: str = ""
    reasoning: str = ""
    call: CallPiece | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole reply: the concatenation of its deltas, and what it cost.

    `finish_reason` is the provider's; None where it gave none, as when it was cut off without an error. `tool_calls` are native ones,
    in OpenAI's form with the arguments as text.
    """

    text: str
    reasoning: str | None = None
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None
    model: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()


class Model(Protocol):
    """Something that answers a chat."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply. `aclose()` of the generator closes the request at once. Raises ModelFailed."""
        ...
