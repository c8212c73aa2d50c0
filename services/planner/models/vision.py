"""Which models take images, and what becomes of a run with images where its model does not.

LiteLLM's table is the default; what the deployment declares wins (`RUNWIRE_MODEL_VISION`). Profiles of the models that this planner uses
stand in the catalogue, under keys that expire, so that the gateway can refuse before a run exists.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import structlog
from nats.errors import Error as NatsError

from contracts import subjects
from contracts.images import ImageRef, ModelProfile, VisionContextPolicy, VisionMode
from contracts.runs import RunRequested
from contracts.tools import ToolSpec
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.planner.agents import Agent
from services.planner.errors import CannotOpen
from services.shared.tool_catalogue import key_subject

logger = structlog.get_logger(__name__)

PROFILE_TTL_S = 60
_REFRESH_S = 20.0
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Sight:
    """Who sees. `known` is asked about models that `declared` does not name."""

    known: Callable[[str], bool] = lambda _: False
    declared: Mapping[str, bool] = field(default_factory=dict)
    mode: VisionMode = "strict"
    """Of runs whose request and agent do not say."""
    policy: VisionContextPolicy | None = None
    """Of agents that have none of their own."""

    def sees(self, model: str) -> bool:
        """Whether the model takes images."""
        return self.declared[model] if model in self.declared else self.known(model)

    def opening(
        self, request: RunRequested, models: list[str], fallbacks: list[str], agent: Agent, tools: Mapping[str, ToolSpec]
    ) -> "Seen":
        """Decide what a run that may be answered by `models` shows them. Raises CannotOpen where they see nothing and must."""
        images, policy = request.images, self._policy_of(agent, tools)
        if not images and policy is None:
            return Seen(models, fallbacks)
        seeing = [model for model in models if self.sees(model)]
        if seeing:
            return Seen(seeing, [model for model in fallbacks if self.sees(model)], images, policy)
        if images and (request.vision or agent.vision or self.mode) == "strict":
            raise CannotOpen("vision_unsupported", blind(models))
        warning = f"image_dropped: {len(images)} of the question: {', '.join(models)} does not take images"
        return Seen(models, fallbacks, warnings=[warning] if images else [])

    def _policy_of(self, agent: Agent, tools: Mapping[str, ToolSpec]) -> VisionContextPolicy | None:
        """What an agent's runs show of the images of these tools, with the tools by name; None: nothing."""
        policy = agent.vision_context or self.policy
        if policy is None or not policy.enabled:
            return None
        # A run keeps its tools to its end, so what a tag means is settled when it is opened.
        wanted = set(policy.allowed_sources)
        named = tuple(name for name, spec in sorted(tools.items()) if wanted & {"*", name, *spec.tags})
        return policy.model_copy(update={"allowed_sources": named})


@dataclass(frozen=True, slots=True)
class Seen:
    """The models that may answer a run, and what they are shown."""

    models: list[str]
    fallbacks: list[str]
    images: list[ImageRef] = field(default_factory=list)
    policy: VisionContextPolicy | None = None
    warnings: list[str] = field(default_factory=list)


def blind(models: Iterable[str]) -> str:
    """Say that models take no images, and how to mend it."""
    return (
        f"{', '.join(models)} does not take images; name a model that does, or declare that this one does (RUNWIRE_MODEL_VISION), "
        "or have images dropped with a warning (`vision` of the request or the agent, or RUNWIRE_VISION=lenient)"
    )


def models_for(agent: Agent, default: str) -> list[str]:
    """The models of which one answers an agent's runs where the request names none."""
    first = agent.model or (agent.models[0] if agent.models else default)
    return list(dict.fromkeys([first, *agent.models]))


def profiles(sight: Sight, agents: Mapping[str, Agent], default: str, named: Iterable[str]) -> list[ModelProfile]:
    """Describe every model that this planner may ask; `named`: those that requests may name."""
    users: dict[str, list[str]] = {model: [] for model in named}
    for name, agent in sorted(agents.items()):
        for model in models_for(agent, default):
            users.setdefault(model, []).append(name)
    blind_ones: Literal["refused", "dropped"] = "refused" if sight.mode == "strict" else "dropped"
    own = {name: agent.vision for name, agent in sorted(agents.items()) if agent.vision is not None}
    return [
        ModelProfile(model=model, images="seen" if sight.sees(model) else blind_ones, agents=of, vision=own) for model, of in users.items()
    ]


async def publish(bus: Bus, wanted: list[ModelProfile]) -> None:
    """Keep the profiles in the catalogue until cancelled."""
    while True:
        pause_s = _REFRESH_S
        try:
            for profile in wanted:
                key = key_subject(subjects.model_key(profile.model))
                await bus.publish(key, profile.model_dump_json().encode(), {"Nats-TTL": str(PROFILE_TTL_S)})
        except (BusError, NatsError, ConnectionError, OSError) as error:
            logger.debug("profiles_not_published", reason=type(error).__name__)
            pause_s = _RETRY_S
        await asyncio.sleep(pause_s)
