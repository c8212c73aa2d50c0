"""The agents file: names, prompts, tools, models and limits of agents.

Read at start; an error names entry and field.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, field_validator

from contracts.artifacts import VisionContextPolicy, VisionMode
from contracts.runs import requests
from contracts.runs.events import ActionFormat, ActionTransport, FollowupMode, Reflection
from contracts.runs.pauses import ApprovalRule
from contracts.sessions.tasks import TaskPolicy
from contracts.wire.faults import describe
from services.planner.run.people.input_rules import InputRule
from services.shared.tools.approvals import check_rules

DEFAULT_AGENT = "default"
"""Used by requests that name no agent. It exists even without a file."""

SUMMARY_AGENT = "runwire.summary"
"""The agent of the internal runs that summarise sessions. No entry of a file can have this name."""

AgentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=requests.MODEL_NAME)]


class InvalidAgents(ValueError):
    """The agents file is invalid. The message names the place and the reason."""


class AgentApprovalRule(ApprovalRule):
    """An approval rule of the agents file. A misspelt field is an error."""

    model_config = ConfigDict(extra="forbid")


class AgentTasks(TaskPolicy):
    """The table `tasks` of an agent. A misspelt field is an error."""

    model_config = ConfigDict(extra="forbid")

    @field_validator("agents", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return dict.fromkeys(value, "") if isinstance(value, list) else value


class Agent(BaseModel):
    """One entry (docs/planner.md#the-agents-file). What is left out comes from the deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: str = Field(default="", max_length=2_000, description="what it is for, for those who may ask it")
    system_prompt: str = Field(
        default="", max_length=200_000, description="the caller's guidance, a section of the prompt of its own"
    )
    skills: list[str] = Field(default_factory=list, description="short instructions, each shown under the guidance")
    tools: list[ToolName] | None = Field(default=None, description="names of the tools that it may use; None: all")
    strategy: requests.StrategyName = Field(
        default=requests.DEFAULT_STRATEGY, description="`react`, `planned` or `chat`"
    )
    model: ModelName | None = Field(default=None, description="the model that its runs use")
    fallbacks: list[ModelName] | None = Field(
        default=None, description="called in this order when the model fails; None: the deployment's"
    )
    models: list[ModelName] = Field(
        default_factory=list, description="main models among which a triage chooses; empty: `model` alone"
    )
    reasoning_effort: requests.RequestedEffort | None = Field(
        default=None, description="`low`, `medium`, `high` or `auto`"
    )
    reflection: Reflection | None = Field(default=None, description="a critique of the answer before the run ends")
    action_format: ActionFormat | None = Field(
        default=None, description="the form of actions that the prompt asks for; None: the deployment's"
    )
    action_transport: ActionTransport | None = Field(
        default=None, description="actions as JSON or as native tool calls; None: the deployment's"
    )
    vision: VisionMode | None = Field(
        default=None, description="what happens to images if the model takes none; the request's own wins"
    )
    vision_context: VisionContextPolicy | None = Field(
        default=None, description="images of tools that the model is shown; None: the deployment's"
    )
    approvals: list[AgentApprovalRule] = Field(
        default_factory=list, description="which calls need a person's approval; of several that match the first counts"
    )
    followup: FollowupMode = Field(
        default="end", description="an answer that requires a follow-up ends the run, or it waits for the user's reply"
    )
    input_rules: list[InputRule] = Field(
        default_factory=list, description="which texts of users are refused, or wait for a person"
    )
    tasks: AgentTasks | None = Field(
        default=None, description="what its runs may do in the background; an empty table: the defaults; None: nothing"
    )
    limits: dict[str, Any] = Field(default_factory=dict, description="fields of RunLimits; the request's own win")

    @field_validator("approvals")
    @classmethod
    def _usable_rules(cls, value: list[AgentApprovalRule]) -> list[AgentApprovalRule]:
        check_rules(value)
        return value

    memory: dict[str, Any] = Field(default_factory=dict, description="fields of Memory; the request's own win")

    @field_validator("limits")
    @classmethod
    def _known_limits(cls, value: dict[str, Any]) -> dict[str, Any]:
        limits = requests.LimitsInput.model_validate(value).model_dump(exclude_unset=True)
        requests.RunLimits.model_validate(limits)  # Checks which of them may be null.
        return limits

    @field_validator("memory")
    @classmethod
    def _known_memory(cls, value: dict[str, Any]) -> dict[str, Any]:
        memory = requests.MemoryInput.model_validate(value).model_dump(exclude_unset=True)
        requests.Memory.model_validate(memory)  # Checks which of them may be null.
        return memory


_AGENTS: TypeAdapter[dict[str, Agent]] = TypeAdapter(dict[AgentName, Agent])


INTERNAL_AGENTS = {SUMMARY_AGENT: Agent(tools=[], limits={"max_steps": 2, "deadline_s": 120})}


def agent_of(agents: Mapping[str, Agent], name: str) -> Agent | None:
    """Return the agent of this name; None: there is none."""
    return INTERNAL_AGENTS.get(name) or agents.get(name)


def load_agents(file: Path | None = None) -> dict[str, Agent]:
    """Read the agents of a TOML or JSON file (by its suffix): a table per agent, by name.

    Without a file there is `default` alone.

    Raises:
        InvalidAgents: the file is missing, is no TOML or JSON, or has an entry that is wrong; all faults are in the
            message.
    """
    if file is None:
        return {DEFAULT_AGENT: Agent()}
    return parse_agents(_read(file), source=str(file))


def parse_agents(entries: Mapping[str, Any], *, source: str = "agents") -> dict[str, Agent]:
    """Check entries as they came out of a file. Raises InvalidAgents."""
    try:
        agents = _AGENTS.validate_python(dict(entries))
    except ValidationError as error:
        raise InvalidAgents(f"{source}: {describe(error, limit=None)}") from None
    agents = {DEFAULT_AGENT: Agent(), **agents}
    for name, agent in agents.items():
        if agent.tasks is None or not agent.tasks.agents:
            continue
        for asked in agent.tasks.agents:
            if asked not in agents:
                raise InvalidAgents(f"{source}: {name}.tasks.agents names {asked!r}, and there is no such agent")
        described = {asked: agents[asked].description for asked in agent.tasks.agents}
        agents[name] = agent.model_copy(update={"tasks": agent.tasks.model_copy(update={"agents": described})})
    return agents


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8-sig")
        loaded = orjson.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InvalidAgents(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidAgents(f"{file}: is not {'JSON' if file.suffix == '.json' else 'TOML'}: {error}") from None
    if not isinstance(loaded, dict):
        raise InvalidAgents(f"{file}: must hold a table of agents by name")
    return loaded
