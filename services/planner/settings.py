"""Settings of the planner: environment variables `RUNWIRE_*`."""

from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from contracts.artifacts import VisionContextPolicy, VisionMode
from contracts.runs.requests import RequestedEffort
from services.planner.agents import ModelName
from services.planner.models.providers import ModelServer
from services.shared.runs.pages.registry import PagesSettings
from services.shared.runs.plan_settings import PlanSettings


class PlannerSettings(PlanSettings, PagesSettings):
    """What a deployment sets for all its runs."""

    model: str | None = Field(
        default=None,
        description="LiteLLM's name of the model; none: by a provider's key, else a local Ollama's, else demo",
    )
    models: Annotated[list[ModelName], NoDecode] = Field(
        default_factory=list,
        description="further models that requests may name, separated by commas or as JSON; `*`: any, which lets every "
        "caller choose the price, and send prompts to any address that the planner reaches",
    )
    model_api_base: str | None = Field(
        default=None, description="of a server that speaks OpenAI's protocol, for models `openai/…`"
    )
    model_api_key: SecretStr | None = Field(
        default=None, description="of that server; providers' keys are read from their own variables"
    )
    model_servers: dict[str, ModelServer] = Field(
        default_factory=dict,
        description="single models behind servers of their own, which speak OpenAI's protocol, as JSON: "
        '{"openai/large": {"api_base": "http://gpu1:8000/v1", "api_key_env": "GPU1_KEY"}}',
    )
    fallback_models: Annotated[list[ModelName], NoDecode] = Field(
        default_factory=list,
        description="models that are called, in this order, when a run's model fails; separated by commas or as JSON",
    )
    thinking_first_models: Annotated[list[ModelName], NoDecode] = Field(
        default_factory=list,
        description="models whose replies begin with a thought and without the mark that opens it: their texts are "
        "shown once the thought is closed; others are known from their first such reply on",
    )
    reasoning_effort: RequestedEffort | None = Field(
        default=None, description="`low`, `medium`, `high`, or `auto`: one cheap call chooses it"
    )
    triage_model: str | None = Field(
        default=None, description="picks the effort where it is `auto`; none: the run's own model"
    )
    use_native_reasoning: bool = Field(
        default=True, description="false: native reasoning is neither asked for nor shown"
    )
    action_format: Literal["auto", "unified", "legacy"] = Field(
        default="auto", description="the form of actions that the prompt asks for"
    )
    action_transport: Literal["json", "tools"] | None = Field(
        default=None,
        description="actions as JSON in the reply, or as native tool calls; none: JSON, and native for `planned`",
    )
    vision: VisionMode = Field(
        default="strict",
        description="images for a model that takes none: the run is refused, or continues without them; "
        "`vision` of an agent or a request takes precedence",
    )
    model_vision: dict[str, bool] = Field(
        default_factory=dict, description="whether a model takes images; others: LiteLLM's table"
    )
    model_reasoning: dict[str, bool] = Field(
        default_factory=dict, description="whether a model takes a reasoning effort; others: LiteLLM's table"
    )
    vision_context: VisionContextPolicy | None = Field(
        default=None, description="which images of tools models are shown; none: no images"
    )
    agents_file: Path | None = Field(default=None, description="TOML or JSON with one table per agent")
    model_idle_s: float = Field(default=120, gt=0, description="longest silence of a model")
    model_total_s: float = Field(default=900, gt=0, description="longest model call, with its retries")
    model_reply_bytes: int = Field(
        default=8 << 20, ge=64 << 10, description="of one reply as a provider sends it; more ends it"
    )
    max_repairs: int = Field(default=2, ge=0, description="complaints about unusable replies, of one decision")
    max_provider_failures: int = Field(
        default=2, ge=0, description="retries of one model in one model call; then the next fallback is called"
    )
    max_context_tokens: int = Field(
        default=100_000,
        ge=1000,
        description="estimated, of a conversation before its older lines are cut; at most half of the model's context",
    )
    planner_slots: int = Field(
        default=2048, ge=1, description="messages of running runs in work at once; one tenant alone gets half"
    )
    planner_request_slots: int = Field(
        default=2048, ge=1, description="new runs in work at once; half of it should be more than RUNWIRE_MAX_OPEN_RUNS"
    )
    retention_days: float = Field(default=30, gt=0, description="finished runs are purged after this time")

    @field_validator("models", "fallback_models", "thinking_first_models", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return orjson.loads(value)
        return [name.strip() for name in value.split(",") if name.strip()]
