"""Resolves a request against this deployment: the run's agent, limits, model, and the tools that it uses until its end.

The outcome is the fact that opens the run. The rules of a run know nothing else of agents, models and strategies.

LiteLLM's table says which models take images, and `RUNWIRE_MODEL_VISION` before it. This planner publishes profiles of
its models in the catalogue, under keys that expire, so that the gateway can refuse a request before a run exists.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import structlog
from pydantic import ValidationError

from contracts.artifacts import ImageRef, ModelProfile, VisionContextPolicy, VisionMode
from contracts.runs.events import ActionFormat, ActionTransport, RunStarted
from contracts.runs.requests import Memory, RequestedEffort, RunLimits, RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire import keys
from contracts.wire.faults import describe
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket
from services.planner.agents import DEFAULT_AGENT, Agent, agent_of
from services.planner.conversation.catalogue import digest_of
from services.planner.errors import CannotOpen
from services.planner.models import demo
from services.planner.models.by_provider import ANY_MODEL
from services.planner.models.providers import known_model
from services.planner.run.commands import Opening
from services.planner.strategies.base import JOB, Strategies
from services.shared.runs.causes import CAUSES
from services.shared.runs.pages.registry import OF_PAGES

logger = structlog.get_logger(__name__)

PROFILE_TTL_S = 60
_REFRESH_S = 20.0
_RETRY_S = 1.0
CHARACTERS_PER_TOKEN = 4
"""A rough average over languages and JSON. Only the decision when to compact depends on it."""


@dataclass(frozen=True, slots=True)
class VisionSupport:
    """Which models take images. `known` decides for models that `declared` does not name."""

    known: Callable[[str], bool] = lambda _: False
    declared: Mapping[str, bool] = field(default_factory=dict)
    mode: VisionMode = "strict"
    """For runs whose request and agent set none."""
    policy: VisionContextPolicy | None = None
    """For agents that set none."""

    def takes_images(self, model: str) -> bool:
        """Whether the model takes images."""
        return self.declared[model] if model in self.declared else self.known(model)

    def opening(
        self,
        request: RunRequested,
        models: list[str],
        fallbacks: list[str],
        agent: Agent,
        tools: Mapping[str, ToolSpec],
    ) -> "VisionChoice":
        """Choose the models of a run, and the images that they receive.

        Raises CannotOpen if it needs vision and has none.
        """
        images, policy = request.images, self._policy_of(agent, tools)
        if not images and policy is None:
            return VisionChoice(models, fallbacks)
        capable = [model for model in models if self.takes_images(model)]
        if capable:
            return VisionChoice(capable, [model for model in fallbacks if self.takes_images(model)], images, policy)
        if images and (request.vision or agent.vision or self.mode) == "strict":
            raise CannotOpen(
                "vision_unsupported",
                f"{', '.join(models)} does not take images; name a model that does, or declare that this one does "
                "(RUNWIRE_MODEL_VISION), or have images dropped with a warning (`vision` of the request or the agent, "
                "or RUNWIRE_VISION=lenient)",
            )
        warning = f"image_dropped: {len(images)} of the question: {', '.join(models)} does not take images"
        return VisionChoice(models, fallbacks, warnings=[warning] if images else [])

    def _policy_of(self, agent: Agent, tools: Mapping[str, ToolSpec]) -> VisionContextPolicy | None:
        """Return the agent's policy for images of tools, with tags resolved to tool names; None: they are not shown."""
        policy = agent.vision_context or self.policy
        if policy is None or not policy.enabled:
            return None
        # A run keeps its tools until its end, so tags are resolved when it is opened.
        wanted = set(policy.allowed_sources)
        named = tuple(name for name, spec in sorted(tools.items()) if wanted & {"*", name, *spec.tags})
        return policy.model_copy(update={"allowed_sources": named})


@dataclass(frozen=True, slots=True)
class VisionChoice:
    """The models that may answer a run, and the images that they receive."""

    models: list[str]
    fallbacks: list[str]
    images: list[ImageRef] = field(default_factory=list)
    policy: VisionContextPolicy | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a request is resolved against. The values are used where neither the request nor its agent sets one."""

    model: str
    agents: Mapping[str, Agent]
    strategies: Strategies
    effort: RequestedEffort | None = None
    triage_model: str | None = None
    fallbacks: tuple[str, ...] = ()
    action_format: ActionFormat = "auto"
    action_transport: ActionTransport | None = None
    """None: that of the strategy."""
    vision_support: VisionSupport = field(default_factory=VisionSupport)
    models: tuple[str, ...] = ()
    """Further models that requests may name."""
    reasons: Callable[[str], bool] = lambda _: True
    """Whether a model is asked for a reasoning effort."""

    def opening(self, request: RunRequested, live: Mapping[str, ToolSpec]) -> Opening:
        """Return the fact that opens the run, and a fault if the request is refused. `live`: all tools, by name."""
        try:
            return Opening(self.started(request, live))
        except CannotOpen as error:
            bare = RunStarted(
                run_id=request.run_id, tenant=request.tenant, request=_listed(request), limits=RunLimits()
            )
            return Opening(bare, error.fault)

    def started(self, request: RunRequested, live: Mapping[str, ToolSpec]) -> RunStarted:
        """Return the fact that opens the run. Raises CannotOpen, which names the fault and the valid values."""
        agent = agent_of(self.agents, request.agent)
        if agent is None:
            known = ", ".join(sorted(self.agents))
            raise CannotOpen("bad_request", f"there is no agent {request.agent!r}; there are: {known}")
        names = [name for name in self.strategies if name != JOB]
        if request.strategy not in {None, *names}:
            raise CannotOpen("bad_request", f"there is no strategy {request.strategy!r}; there are: {', '.join(names)}")
        try:
            limits = RunLimits.model_validate({**agent.limits, **request.limits})
        except ValidationError as error:
            raise CannotOpen("bad_request", f"limits.{describe(error, limit=1)}") from error
        if request.model is not None and CAUSES[request.cause].is_callers_choice:
            self._check_model(request.model)
        models = [request.model] if request.model else models_for(agent, self.model)
        fallbacks = list(self.fallbacks if agent.fallbacks is None else agent.fallbacks)
        tools = _allowed(request, agent, live)
        vision = self.vision_support.opening(request, models, fallbacks, agent, tools)
        model = vision.models[0]
        name = request.strategy or (agent.strategy if request.page is None else OF_PAGES)
        strategy = self.strategies[name if CAUSES[request.cause].asks_model else JOB]
        transport = agent.action_transport or self.action_transport or strategy.transport
        tasks = agent.tasks if strategy.may_spawn and CAUSES[request.cause].may_spawn else None
        is_too_deep = tasks is not None and (request.depth >= tasks.max_depth or request.hops >= tasks.max_hops)
        effort = request.reasoning_effort or agent.reasoning_effort or self.effort
        unheard = effort is not None and not any(map(self.reasons, [*vision.models, *vision.fallbacks]))
        not_sent = f"effort_not_sent: {model} takes no reasoning effort, or RUNWIRE_MODEL_REASONING has to declare it"
        absent = [f"the tool {name} is not there: the run goes on without it" for name in self.absent(request, live)]
        return RunStarted(
            run_id=request.run_id,
            tenant=request.tenant,
            request=_listed(request),
            has_tool_context=bool(request.tool_context),
            limits=limits,
            strategy=name,
            tools={name: digest_of(spec) for name, spec in tools.items()},
            approval_rules=agent.approvals,
            approvals=[name for name, spec in tools.items() if spec.requires_approval],
            memory=self._memory(request, agent),
            model=model,
            models=[] if request.model else [name for name in agent.models if name in vision.models],
            fallbacks=vision.fallbacks,
            effort=None if unheard else effort,
            triage_model=self.triage_model,
            reflection=agent.reflection,
            followup=agent.followup,
            tasks=None if is_too_deep else tasks,
            action_format=agent.action_format or self.action_format,
            action_transport="json" if model == demo.NAME else transport,
            images=vision.images,
            vision_context=vision.policy,
            warnings=[*strategy.warnings(model), *vision.warnings, *[not_sent] * unheard, *absent],
            deadline_at=None if limits.deadline_s is None else request.requested_at + int(limits.deadline_s * 1000),
        )

    def named_models(self) -> list[str]:
        """Return the models that the deployment and its agents name, sorted: requests may name any of these."""
        names = {self.model, self.triage_model, *self.models, *self.fallbacks, demo.NAME}
        for agent in self.agents.values():
            critic = agent.reflection.model if agent.reflection else None
            names |= {agent.model, *agent.models, *(agent.fallbacks or ()), critic, agent.memory.get("summary_model")}
        return sorted(name for name in names if name)

    def agent(self, started: RunStarted) -> Agent:
        """Return the agent of a run; the default agent for one that is not in the agents file any more."""
        return agent_of(self.agents, started.request.agent) or self.agents[DEFAULT_AGENT]

    def absent(self, request: RunRequested, live: Mapping[str, ToolSpec]) -> list[str]:
        """Return the tools that request or agent name and the run may use, but that no tool service offers."""
        agent = agent_of(self.agents, request.agent)
        of_agent = agent.tools if agent is not None and not _applies(request) else None
        limits = [limit for limit in (request.tools, of_agent, request.key_tools) if limit is not None]
        named = next((limit for limit in (request.tools, of_agent) if limit is not None), [])
        return [name for name in named if name not in live and all(name in limit for limit in limits)]

    def _memory(self, request: RunRequested, agent: Agent) -> Memory | None:
        """Return how much of its conversation the run is shown; None for a run without one."""
        if not CAUSES[request.cause].has_turn or (request.session_id is None and not request.messages):
            return None
        try:
            memory = Memory.model_validate({**agent.memory, **request.memory})
        except ValidationError as error:
            raise CannotOpen("bad_request", f"memory.{describe(error, limit=1)}") from error
        if request.memory.get("summary_model"):
            self._check_model(request.memory["summary_model"])
        return memory

    def _check_model(self, model: str) -> None:
        names = self.named_models()
        if model not in names and ANY_MODEL not in names:
            raise CannotOpen("bad_request", f"there is no model {model[:200]!r} here; there are: {', '.join(names)}")


def max_characters(model: str, limit: int) -> int:
    """Return the length above which a conversation with this model is compacted. `limit`: that of the deployment.

    It is at most half of the model's context where that is known. The other half is for the system message, the reply
    and texts with fewer characters per token than estimated.
    """
    known = known_model(model)
    if known is None or not known.context_tokens:
        return limit
    return min(limit, known.context_tokens * CHARACTERS_PER_TOKEN // 2)


def _listed(request: RunRequested) -> RunRequested:
    """Return the request as listeners receive it: without `tool_context`, which is stored elsewhere."""
    return request.model_copy(update={"tool_context": {}})


def _applies(request: RunRequested) -> bool:
    """Whether the run applies a proposal: a person does, and an agent's `tools` are what its model may call.

    Other calls belong to no conversation.
    """
    return CAUSES[request.cause].may_call_hidden and request.session_id is not None


def _allowed(request: RunRequested, agent: Agent, live: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    may_call_hidden = CAUSES[request.cause].may_call_hidden
    names = {name for name, spec in live.items() if may_call_hidden or not spec.hidden}
    names &= names if agent.tools is None or _applies(request) else set(agent.tools)
    if request.tools is not None:
        missing = set(request.tools) - names
        if missing:
            raise CannotOpen("unknown_tool", f"no such tool for agent {request.agent!r}: {', '.join(sorted(missing))}")
        names = set(request.tools)
    if request.key_tools is not None:
        names &= set(request.key_tools)
    return {name: live[name] for name in sorted(names)}


def models_for(agent: Agent, default: str) -> list[str]:
    """The models that may answer an agent's runs if the request names none."""
    first = agent.model or (agent.models[0] if agent.models else default)
    return list(dict.fromkeys([first, *agent.models]))


def profiles(
    support: VisionSupport, agents: Mapping[str, Agent], default: str, named: Iterable[str]
) -> list[ModelProfile]:
    """Describe every model that this planner may call. `named`: those that requests may name."""
    users: dict[str, list[str]] = {model: [] for model in named}
    for name, agent in sorted(agents.items()):
        for model in models_for(agent, default):
            users.setdefault(model, []).append(name)
    otherwise: Literal["refused", "dropped"] = "refused" if support.mode == "strict" else "dropped"
    own = {name: agent.vision for name, agent in sorted(agents.items()) if agent.vision is not None}
    return [
        ModelProfile(
            model=model,
            images="seen" if support.takes_images(model) else otherwise,
            agents=of,
            vision=own,
            descriptions={name: text for name in of if (text := agents[name].description)},
        )
        for model, of in users.items()
    ]


async def publish_profiles(bus: Bus, wanted: list[ModelProfile]) -> bool:
    """Publish the profiles to the catalogue; return whether NATS has taken all of them."""
    bucket = Bucket(bus, keys.CATALOGUE_BUCKET, attempts=1)
    try:
        for profile in wanted:
            await bucket.put(keys.model_key(profile.model), profile, ttl_s=PROFILE_TTL_S)
    except BusError as error:
        logger.debug("profiles_not_published", reason=type(error).__name__)
        return False
    return True


async def keep_published(bus: Bus, wanted: list[ModelProfile], *, is_published: bool) -> None:
    """Publish the profiles again periodically, until cancelled."""
    while True:
        await asyncio.sleep(_REFRESH_S if is_published else _RETRY_S)
        is_published = await publish_profiles(bus, wanted)
