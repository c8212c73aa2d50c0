"""Builds `run_started`: the run's agent, limits, model, and the tool specifications that it uses until its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from pydantic import ValidationError

from contracts.runs.events import ActionFormat, ActionTransport, RunStarted
from contracts.runs.requests import Memory, RequestedEffort, RunLimits, RunRequested, StrategyName
from contracts.sessions.tasks import TaskPolicy
from contracts.tools.messages import ToolSpec
from contracts.wire.validation_errors import describe
from services.planner.agents import Agent, agent_of
from services.planner.errors import CannotOpen
from services.planner.models import demo
from services.planner.models.selection import ANY_MODEL, named_models
from services.planner.models.vision import VisionSupport, models_for

STRATEGIES: tuple[str, ...] = get_args(StrategyName)
TRANSPORTS: dict[str, ActionTransport] = {"react": "json", "planned": "tools"}
"""The transport of each strategy where neither the agent nor the deployment names one."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values used where neither the request nor its agent sets one."""

    model: str
    effort: RequestedEffort | None = None
    triage_model: str | None = None
    fallbacks: tuple[str, ...] = ()
    action_format: ActionFormat = "auto"
    action_transport: ActionTransport | None = None
    """None: that of the strategy."""
    vision_support: VisionSupport = field(default_factory=VisionSupport)
    models: tuple[str, ...] = ()
    """Further models that requests may name."""


def open_run(
    request: RunRequested, agents: Mapping[str, Agent], live: Mapping[str, ToolSpec], defaults: Defaults
) -> RunStarted:
    """Resolve a request against this deployment. Raises CannotOpen, which names the fault and the valid values."""
    agent = _agent_of(request, agents)
    _check_strategy(request)
    limits = _limits(request, agent)
    models = _models(request, agent, agents, defaults)
    tools = _allowed(request, agent, live)
    vision = defaults.vision_support.opening(request, models, _fallbacks(agent, defaults), agent, tools)
    model = vision.models[0]
    strategy = request.strategy or agent.strategy
    return RunStarted(
        run_id=request.run_id,
        tenant=request.tenant,
        request=listed(request),
        has_tool_context=bool(request.tool_context),
        limits=limits,
        strategy=strategy,
        tools={name: spec.digest() for name, spec in tools.items()},
        approval_rules=agent.approvals,
        approvals=[name for name, spec in tools.items() if spec.requires_approval],
        memory=_memory(request, agent, agents, defaults),
        model=model,
        models=[] if request.model else [name for name in agent.models if name in vision.models],
        fallbacks=vision.fallbacks,
        effort=request.reasoning_effort or agent.reasoning_effort or defaults.effort,
        triage_model=defaults.triage_model,
        reflection=agent.reflection,
        followup=agent.followup,
        tasks=_tasks(request, agent),
        action_format=agent.action_format or defaults.action_format,
        action_transport=_transport(model, strategy, agent, defaults),
        images=vision.images,
        vision_context=vision.policy,
        warnings=[*_of_demo_model(model, strategy), *vision.warnings, *_of_absent_tools(request, agents, live)],
        deadline_at=None if limits.deadline_s is None else request.requested_at + int(limits.deadline_s * 1000),
    )


def _transport(model: str, strategy: str, agent: Agent, defaults: Defaults) -> ActionTransport:
    if model == demo.NAME:
        return "json"
    return agent.action_transport or defaults.action_transport or TRANSPORTS[strategy]


def _of_demo_model(model: str, strategy: str) -> list[str]:
    """Return the warning of the demo model, which has no place for it in a plan."""
    return [demo.WARNING] if model == demo.NAME and strategy == "planned" else []


def _of_absent_tools(request: RunRequested, agents: Mapping[str, Agent], live: Mapping[str, ToolSpec]) -> list[str]:
    return [f"the tool {name} is not there: the run goes on without it" for name in absent(request, agents, live)]


def _models(request: RunRequested, agent: Agent, agents: Mapping[str, Agent], defaults: Defaults) -> list[str]:
    if request.model is not None and request.cause == "user":
        _check_model(request.model, agents, defaults)
    return [request.model] if request.model else models_for(agent, defaults.model)


def _fallbacks(agent: Agent, defaults: Defaults) -> list[str]:
    return list(defaults.fallbacks if agent.fallbacks is None else agent.fallbacks)


def _agent_of(request: RunRequested, agents: Mapping[str, Agent]) -> Agent:
    agent = agent_of(agents, request.agent)
    if agent is None:
        raise CannotOpen("bad_request", f"there is no agent {request.agent!r}; there are: {', '.join(sorted(agents))}")
    return agent


def absent(request: RunRequested, agents: Mapping[str, Agent], live: Mapping[str, ToolSpec]) -> list[str]:
    """Return the tools that the agent names and the run may use, but that no tool service offers."""
    agent = agent_of(agents, request.agent)
    named = agent.tools if agent is not None and agent.tools is not None else []
    return [name for name in named if name not in live and all(name in limit for limit in _tool_limits(request))]


def _tool_limits(request: RunRequested) -> list[list[str]]:
    return [limit for limit in (request.tools, request.key_tools) if limit is not None]


def _check_strategy(request: RunRequested) -> None:
    if request.strategy not in {None, *STRATEGIES}:
        names = ", ".join(STRATEGIES)
        raise CannotOpen("bad_request", f"there is no strategy {request.strategy!r}; there are: {names}")


def _check_model(model: str, agents: Mapping[str, Agent], defaults: Defaults) -> None:
    names = named_models(agents, defaults)
    if model not in names and ANY_MODEL not in names:
        raise CannotOpen("bad_request", f"there is no model {model[:200]!r} here; there are: {', '.join(names)}")


def listed(request: RunRequested) -> RunRequested:
    """Return the request as listeners receive it: without `tool_context`, which is stored elsewhere."""
    return request.model_copy(update={"tool_context": {}})


def _limits(request: RunRequested, agent: Agent) -> RunLimits:
    try:
        return RunLimits.model_validate({**agent.limits, **request.limits})
    except ValidationError as error:
        raise CannotOpen("bad_request", f"limits.{describe(error, limit=1)}") from error


def _memory(request: RunRequested, agent: Agent, agents: Mapping[str, Agent], defaults: Defaults) -> Memory | None:
    """Return how much of its conversation the run is shown; None for a run without one."""
    if request.cause not in {"user", "report"} or (request.session_id is None and not request.messages):
        return None
    try:
        memory = Memory.model_validate({**agent.memory, **request.memory})
    except ValidationError as error:
        raise CannotOpen("bad_request", f"memory.{describe(error, limit=1)}") from error
    if request.memory.get("summary_model"):
        _check_model(request.memory["summary_model"], agents, defaults)
    return memory


def _tasks(request: RunRequested, agent: Agent) -> TaskPolicy | None:
    """Return what the run may do in the background; None: nothing, as for tasks that are nested too deep."""
    policy = agent.tasks if (request.strategy or agent.strategy) == "react" else None
    if policy is None or request.cause in {"summary", "job"}:
        return None
    return None if request.depth >= policy.max_depth or request.hops >= policy.max_hops else policy


def _allowed(request: RunRequested, agent: Agent, live: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    names = set(live) if agent.tools is None else set(agent.tools) & set(live)
    if request.tools is not None:
        missing = set(request.tools) - names
        if missing:
            raise CannotOpen("unknown_tool", f"no such tool for agent {request.agent!r}: {', '.join(sorted(missing))}")
        names = set(request.tools)
    if request.key_tools is not None:
        names &= set(request.key_tools)
    return {name: live[name] for name in sorted(names)}
