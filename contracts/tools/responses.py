"""The standard form of a tool's result that is an artifact, and what is kept of it with the outcome of its call.

A result with the members `artifact_id`, `artifact` and `_metadata` has this form. `artifact` is stored, and the model
is shown a preview of it.
"""

from pydantic import AliasChoices, Field

from ..artifacts.references import ArtifactRef, JsonType
from ..wire.base import Message, is_absent

MAX_OWN_ID_CHARACTERS = 200
"""Longest id that a tool gives its artifact."""


class ToolResponseMetadata(Message):
    """`_metadata` of a tool's result: for what and by whom it was made."""

    context_id: str = Field(description="the session of the run; without one, the run")
    request_id: str = Field(description="the id that the caller gave the request; without one, the run")
    trace_id: str | None = None
    user_id: str | None = None
    tool_name: str
    executed_at: str = Field(
        description="UTC, ISO 8601 with Z", validation_alias=AliasChoices("executed_at", "timestamp")
    )
    session_id: str | None = Field(default=None, exclude_if=is_absent)
    task_id: str | None = Field(default=None, exclude_if=is_absent)
    agent_name: str | None = Field(default=None, exclude_if=is_absent)
    skill_id: str | None = Field(default=None, exclude_if=is_absent)
    skill_name: str | None = Field(default=None, exclude_if=is_absent)
    execution_id: str | None = Field(default=None, exclude_if=is_absent)


class ArtifactPreview(Message):
    """A bounded view of an artifact for the model, without what the tool's schema hides from it."""

    json_type: JsonType
    size: int = Field(description="bytes, as it is stored")
    counts: dict[str, int] = Field(
        default_factory=dict, description="dotted path -> number of items of a list, or of members of the object itself"
    )
    head: str = Field(description="the beginning of its JSON, or of its text")


class RespondedArtifact(Message):
    """The artifact of a result in the standard form."""

    artifact_id: str = Field(description="the id that the tool gave it, any text")
    ref: ArtifactRef | None = Field(default=None, description="where it is stored; null: in `artifacts` of the outcome")
    fingerprint: str = Field(description="tool name and digest of the arguments of its call")
    artifact_type: str | None = None
    skill_id: str | None = None
    skill_name: str | None = None
    preview: ArtifactPreview | None = Field(default=None, description="null: the tool's schema hides all of it")
