"""`ToolResponse`: a result whose value is a named artifact: a canonical result.

Rule: `_metadata` is filled from the context of the call when the result is encoded, so a function returns the artifact
and what it alone knows.
"""

from datetime import UTC, datetime
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from contracts.tools.messages import MAX_OWN_ID_CHARACTERS, ToolResponseMetadata
from contracts.wire.names import new_id
from runwire.tools.context import ToolContext, encode_content

ArtifactT = TypeVar("ArtifactT")


class ToolResponse(BaseModel, Generic[ArtifactT]):
    """An artifact with its id: `return ToolResponse(Blog(title="…"), artifact_id="abc-123", skill_id="research")`."""

    model_config = ConfigDict(
        validate_by_name=True,
        validate_by_alias=True,
        # What the model reads of it: the description of the artifact says more.
        json_schema_extra=lambda schema: schema.pop("description", None),
    )

    artifact_id: str = Field(min_length=1, max_length=MAX_OWN_ID_CHARACTERS, description="names the artifact")
    mcp_execution_id: str | SkipJsonSchema[None] = Field(default=None, description="names this execution")
    artifact: ArtifactT
    metadata: ToolResponseMetadata | SkipJsonSchema[None] = Field(alias="_metadata")
    skill_id: str | None = Field(default=None, exclude=True)
    skill_name: str | None = Field(default=None, exclude=True)
    agent_name: str | None = Field(default=None, exclude=True)
    content: str | None = Field(default=None, exclude=True)

    def __init__(
        self,
        artifact: ArtifactT,
        *,
        artifact_id: str | None = None,
        mcp_execution_id: str | None = None,
        skill_id: str | None = None,
        skill_name: str | None = None,
        agent_name: str | None = None,
        content: str | None = None,
    ) -> None:
        """Make the result of a call.

        Args:
            artifact: the value. People get it; the model reads its size, and in a planned run a preview of it.
            artifact_id: any text of 1 to 200 characters, under which the artifact is found in its session, else in its
                run; without one it has a new id.
            mcp_execution_id: default: the call's `idempotency_key`.
            skill_id: of the skill with which it was made, as `skill_name`; `agent_name`: who made it.
            skill_name: see `skill_id`.
            agent_name: see `skill_id`.
            content: a text for the model, as in `ToolContext.set_content`.

        Raises:
            ValueError: the id is empty or too long, or the content is above 32 KiB.
        """
        if content is not None:
            encode_content(content)
        super().__init__(
            artifact=artifact,
            artifact_id=new_id() if artifact_id is None else _checked_id(artifact_id),
            mcp_execution_id=mcp_execution_id,
            metadata=None,
            skill_id=skill_id,
            skill_name=skill_name,
            agent_name=agent_name,
            content=content,
        )

    # Pydantic validates JSON of a result without it, as a base class whose arguments are the fields.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def completed(self, tool_name: str, ctx: ToolContext) -> "ToolResponse[ArtifactT]":
        """Return the result as it is sent, with what the context knows of the call. The context gets its content."""
        if self.content is not None:
            ctx.set_content(self.content)
        metadata = ToolResponseMetadata(
            context_id=ctx.context_id,
            request_id=ctx.request_id,
            trace_id=ctx.trace_id,
            user_id=ctx.user_id,
            tool_name=tool_name,
            executed_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            session_id=ctx.session_id,
            agent_name=self.agent_name,
            skill_id=self.skill_id,
            skill_name=self.skill_name,
        )
        execution_id = self.mcp_execution_id or ctx.idempotency_key
        return self.model_copy(update={"metadata": metadata, "mcp_execution_id": execution_id})


def _checked_id(artifact_id: str) -> str:
    if not artifact_id:
        raise ValueError(
            f"artifact_id is empty: give a text of 1 to {MAX_OWN_ID_CHARACTERS} characters, or leave it out"
        )
    if len(artifact_id) > MAX_OWN_ID_CHARACTERS:
        raise ValueError(f"artifact_id has {len(artifact_id)} characters, and at most {MAX_OWN_ID_CHARACTERS} are kept")
    return artifact_id
