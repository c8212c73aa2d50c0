"""Which models take images, and what happens to a run with images whose model takes none.

LiteLLM's table is the default; `RUNWIRE_MODEL_VISION` overrides it. This planner publishes profiles of its models in
the catalogue, under keys that expire, so that the gateway can refuse a request before a run exists.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import structlog

from contracts.artifacts.images import ImageRef, ModelProfile, VisionContextPolicy, VisionMode
from contracts.runs.requests import RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket
from services.planner.agents import Agent
from services.planner.errors import CannotOpen

logger = structlog.get_logger(__name__)

PROFILE_TTL_S = 60
_REFRESH_S = 20.0
_RETRY_S = 1.0


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


async def publish(bus: Bus, wanted: list[ModelProfile]) -> None:
    """Publish the profiles to the catalogue, periodically, until cancelled."""
    bucket = Bucket(bus, keys.CATALOGUE_BUCKET, attempts=1)
    while True:
        pause_s = _REFRESH_S
        try:
            for profile in wanted:
                await bucket.put(keys.model_key(profile.model), profile, ttl_s=PROFILE_TTL_S)
        except BusError as error:
            logger.debug("profiles_not_published", reason=type(error).__name__)
            pause_s = _RETRY_S
        await asyncio.sleep(pause_s)
