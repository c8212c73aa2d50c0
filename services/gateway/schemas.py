"""What the gateway takes and gives besides the contracts."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from contracts.artifacts import StoredArtifact
from contracts.base import HttpInput
from contracts.payload import FinalPayload
from contracts.runs import LimitsInput, RunInput, RunStatus
from contracts.tools import RefusedTool, ToolSpec


class CancelInput(HttpInput):
    """The body of `POST /v1/runs/{run_id}/cancel`; it may be left out."""

    reason: str = Field(default="", max_length=1000, description="shown to listeners")


class TopUpInput(HttpInput):
    """The body of `POST /v1/runs/{run_id}/top-up`: what the run may spend from now on.

    What is left out stays as it is.
    """

    limits: LimitsInput = Field(json_schema_extra={"minProperties": 1})

    @field_validator("limits")
    @classmethod
    def _not_empty(cls, limits: LimitsInput) -> LimitsInput:
        if not limits.model_fields_set:
            raise ValueError("names no limit")
        return limits


class ChatInput(RunInput):
    """The body of `POST /chat`, a compatibility surface: that of a run, and unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ChatAnswer(BaseModel):
    """The answer of `POST /chat`, however the run ended."""

    run_id: str
    payload: FinalPayload


class RunPage(BaseModel):
    """Some runs, newest first."""

    runs: list[RunStatus]
    next_cursor: str | None = Field(default=None, description="ask for the following page with it; null: there is none")


class ArtifactList(BaseModel):
    """Some artifacts, in the order in which they were stored."""

    artifacts: list[StoredArtifact]
    next_cursor: str | None = Field(default=None, description="ask for the following page with it; null: there is none")


class ToolList(BaseModel):
    """The tools that are there right now."""

    tools: list[ToolSpec]
    refused: list[RefusedTool] = Field(
        default_factory=list, description="those that announce themselves and cannot be used"
    )
