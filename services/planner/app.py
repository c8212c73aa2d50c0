"""Composes the planner. Settings and agents are read before, once; nothing connects at import."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog

from contracts.artifacts.images import ModelProfile
from contracts.runs.requests import DEFAULT_STRATEGY
from contracts.wire import subjects
from services.messaging.connection import Bus
from services.messaging.pull_consumer import PullConsumer
from services.messaging.streams.definitions import PLANNER_CONTROL, PLANNER_INBOX, PLANNER_REQUESTS, PLANNER_SESSION
from services.planner.effects.direct_calls import DirectCalls
from services.planner.effects.image_loader import ImageLoader
from services.planner.effects.model_requests import ModelRequests
from services.planner.models import demo, vision
from services.planner.models.by_provider import ByProvider, WithoutRefusedFormats
from services.planner.models.limits import Limits
from services.planner.models.model_table import known_model
from services.planner.models.providers import Endpoints
from services.planner.models.selection import find_model, named_models
from services.planner.models.types import Model
from services.planner.resolution import CHARACTERS_PER_TOKEN, Deployment
from services.planner.run.commands import FIRST_PAUSE_S, Rules
from services.planner.strategies.registry import strategies_of
from services.planner.upkeep import retention, schedules
from services.planner.upkeep.deletions import Deletions
from services.planner.upkeep.orphans import Forgotten
from services.runtime.tasks import cancelled
from services.shared.tools.catalogue import Catalogue

from .agents import Agent
from .handlers import Planner
from .settings import PlannerSettings

logger = structlog.get_logger(__name__)


def build_planner(
    settings: PlannerSettings,
    agents: Mapping[str, Agent],
    bus: Bus,
    catalogue: Catalogue,
    model: Model,
    default_model: str,
    vision_support: vision.VisionSupport | None = None,
    first_pause_s: float = FIRST_PAUSE_S,
    direct_calls: DirectCalls | None = None,
) -> Planner:
    """Compose the planner; nothing connects here.

    `vision_support`: which models take images; None: no model does. `first_pause_s`: pause before the first retry of a
    model. `direct_calls`: None: all calls of tools go through CALLS.
    """
    deployment = _deployment(settings, agents, default_model, vision_support or vision.VisionSupport())
    model_requests = ModelRequests(
        model=model, deployment=deployment, catalogue=catalogue, image_loader=ImageLoader(bus)
    )
    rules = Rules(
        strategy=deployment.strategies[DEFAULT_STRATEGY],
        max_repairs=settings.max_repairs,
        max_provider_failures=settings.max_provider_failures,
        first_pause_s=first_pause_s,
        model_total_s=settings.model_total_s,
        max_characters=settings.max_context_tokens * CHARACTERS_PER_TOKEN,
    )
    return Planner(
        bus,
        model_requests,
        rules,
        direct_calls or DirectCalls(bus, enabled=False, max_waiting=0),
        cached_runs=settings.planner_cached_runs,
        chunk_ttl_s=settings.chunk_ttl_s,
    )


def _deployment(
    settings: PlannerSettings, agents: Mapping[str, Agent], default_model: str, vision_support: vision.VisionSupport
) -> Deployment:
    return Deployment(
        default_model,
        agents,
        strategies_of(settings),
        settings.reasoning_effort,
        settings.triage_model,
        tuple(settings.fallback_models),
        settings.action_format,
        settings.action_transport,
        vision_support,
        tuple(settings.models),
    )


def profiles_of(
    settings: PlannerSettings, agents: Mapping[str, Agent], default_model: str, vision_support: vision.VisionSupport
) -> list[ModelProfile]:
    """Describe all models that runs may use, for the gateway."""
    named = named_models(agents, _deployment(settings, agents, default_model, vision_support))
    return vision.profiles(vision_support, agents, default_model, named)


def models_of(settings: PlannerSettings, environment: Mapping[str, str]) -> ByProvider:
    """Return the client of all models. `environment` holds the keys of providers."""
    endpoints = Endpoints(
        environment=environment,
        api_base=settings.model_api_base,
        api_key=settings.model_api_key.get_secret_value() if settings.model_api_key else None,
        servers=settings.model_servers,
    )
    return ByProvider(endpoints, Limits(reply=settings.model_reply_bytes))


def vision_support_of(settings: PlannerSettings) -> vision.VisionSupport:
    """Return which models take images. The demo model takes them, and names them in its answer."""

    def takes_images(model: str) -> bool:
        known = known_model(model)
        return model == demo.NAME or (known is not None and known.vision)

    return vision.VisionSupport(takes_images, settings.model_vision, settings.vision, settings.vision_context)


def pullers(bus: Bus, planner: Planner, settings: PlannerSettings) -> list[PullConsumer]:
    """Return the pull consumers of the planner's messages.

    Each consumer has slots of its own, so that requests of people never wait behind model calls. Tenants share the
    slots of each consumer.
    """
    return [
        PullConsumer(bus, stream, consumer, planner.on_message, slots, subjects.tenant_of)
        for stream, consumer, slots in (
            (subjects.INBOX, PLANNER_CONTROL, settings.planner_control_slots),
            (subjects.INBOX, PLANNER_INBOX, settings.planner_slots),
            (subjects.INBOX, PLANNER_SESSION, settings.planner_session_slots),
            (subjects.REQUESTS, PLANNER_REQUESTS, settings.planner_request_slots),
        )
    ]


@asynccontextmanager
async def running(bus: Bus, settings: PlannerSettings, agents: Mapping[str, Agent]) -> AsyncIterator[None]:
    """Handle the messages of the four consumers, over a connection that is provisioned, until the context ends.

    The background tasks are supervised: one that dies fails readiness.
    """
    chosen = await find_model(settings.model, os.environ)
    logger.info("model_chosen", model=chosen.model, because=chosen.because)
    vision_support = vision_support_of(settings)
    profiles = profiles_of(settings, agents, chosen.model, vision_support)
    models = models_of(settings, os.environ)
    await models.warm(profile.model for profile in profiles)
    catalogue = await Catalogue(bus).start()
    direct_calls = await DirectCalls(
        bus,
        enabled=settings.direct_calls,
        max_waiting=min(settings.planner_slots, settings.planner_request_slots) // 2,
    ).start()
    planner = build_planner(
        settings,
        agents,
        bus,
        catalogue,
        WithoutRefusedFormats(models),
        chosen.model,
        vision_support,
        direct_calls=direct_calls,
    )
    background = [
        bus.tasks.keep("retention_sweep", retention.watch(bus, settings.retention_days)),
        bus.tasks.keep("forgotten_messages", Forgotten(bus, planner.on_message, settings.retention_days).watch()),
        bus.tasks.keep("deletions", Deletions(bus).carry_out_for_ever()),
        bus.tasks.keep("schedules", schedules.watch(bus)),
        bus.tasks.keep("model_profiles", vision.publish(bus, profiles)),
    ]
    running = [await puller.start() for puller in pullers(bus, planner, settings)]
    try:
        yield
    finally:
        await direct_calls.stop()
        await cancelled(*background)
        await asyncio.gather(*(puller.stop(settings.graceful_timeout_s) for puller in running))
        await catalogue.stop()
        await models.aclose()
