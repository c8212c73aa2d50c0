"""The prompt of a model call, rendered again from the log of its run: gateway to planner, and back."""

from typing import Any, Literal

from pydantic import Field

from ..wire.base import Message


class PromptRequested(Message):
    """Which model call of which run: as its event `asked` names it."""

    tenant: str
    run_id: str
    turn: int
    part: int = 0
    attempt: int


class Prompt(Message):
    """A request to a model as a planner renders it now. Images are references, as they are in the log."""

    model: str
    messages: list[dict[str, Any]] = Field(description="in the shape of a chat completion")
    tools: list[dict[str, Any]] | None = Field(default=None, description="functions that the model may call")
    tool_choice: str | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    tokens: int = Field(description="estimated")
    rendered_by: str = Field(description="version of this planner")
    asked_by: str = Field(description="version of the planner that asked the model; empty: it did not say")


class PromptRendered(Message):
    """The answer of a planner: the prompt, or why there is none."""

    prompt: Prompt | None = None
    problem: Literal["no_such_call", "too_large"] | None = None
