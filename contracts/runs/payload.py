"""The one shape in which every run ends."""

from typing import Any, Literal

from pydantic import Field

from ..wire.base import Message, is_absent

CALL_RESULT = "result"
"""Key in `extra`, of a run that makes one call: the call's result, as a model would read it."""
Reason = Literal["answer_complete", "budget_exhausted", "no_path", "cancelled", "error"]


class Source(Message):
    """The source of a statement. A value without a `title` is no source."""

    title: str
    url: str | None = None
    snippet: str | None = None
    relevance_score: float | None = None


class TaskFindings(Message):
    """What tasks have made, for the payload of the run that waited for them, or that reports on them."""

    artifacts: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="`<tool>#<task id>` -> dotted path -> JSON value or ArtifactRef"
    )
    artifact_types: dict[str, dict[str, str]] = Field(
        default_factory=dict, exclude_if=is_absent, description="in the same places, where one is known"
    )
    sources: list[Source] = Field(default_factory=list)
    whole: str | None = Field(default=None, description="the artifact with all results, where they were cut")


class SuggestedAction(Message):
    """A suggestion for what the user may do next. The client knows the meaning of `action_id`."""

    action_id: str
    label: str
    params: dict[str, Any] = Field(default_factory=dict)


NO_ANSWER = "No answer produced."
"""The answer of a run that has none."""


class FinalPayload(Message):
    """The result of a run, whether it succeeded, spent a budget, was cancelled or failed."""

    raw_answer: str
    artifacts: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="tool -> field -> JSON value or ArtifactRef; from tools only"
    )
    artifact_types: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        exclude_if=is_absent,
        description="tool -> field -> what the artifact is, such as `chart`, where the tool or its form tells",
    )
    confidence: float | None = Field(default=None, ge=0, le=1)
    sources: list[Source] = Field(default_factory=list)
    route: str | None = Field(default=None, description="`partial` if a budget stopped the run, `error` if it failed")
    suggested_actions: list[SuggestedAction] = Field(default_factory=list)
    requires_followup: bool = False
    warnings: list[str] = Field(default_factory=list)
    language: str | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class Usage(Message):
    """What a run has spent. Tokens are counted by the provider, or estimated if it gives no count (`estimated`)."""

    model_calls: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = Field(default=None, description="null: at least one model has no known price")
    repairs: int = 0
    estimated: bool = False
