"""Composes the planner from its settings and agents, and runs its consumers. Nothing connects at import."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog

from contracts.artifacts import ModelProfile
from contracts.runs.requests import DEFAULT_STRATEGY
from contracts.wire import subjects
from services.messaging.connection import Bus
from services.messaging.pull_consumer import PullConsumer
from services.messaging.streams import PLANNER_CONTROL, PLANNER_INBOX, PLANNER_REQUESTS, PLANNER_SESSION
from services.planner import resolution
from services.planner.agents import Agent
from services.planner.effects.call_paths import CallPlaces, DirectCalls
from services.planner.effects.chunk_publisher import ChunkWriter
from services.planner.effects.image_loader import ImageLoader
from services.planner.effects.model_requests import ModelRequests, Prompts
from services.planner.effects.parts import Parts
from services.planner.effects.sessions import Sessions
from services.planner.handlers import Planner
from services.planner.logs.run_log import RunLogs
from services.planner.logs.session_log import SessionLogs
from services.planner.models import demo
from services.planner.models.by_provider import ByProvider, find_model
from services.planner.models.limits import Limits
from services.planner.models.providers import Endpoints, known_model, reasons
from services.planner.models.refusals import WithoutRefusedFields
from services.planner.models.types import Model
from services.planner.resolution import CHARACTERS_PER_TOKEN, Deployment
from services.planner.run.commands import Rules
from services.planner.settings import PlannerSettings
from services.planner.strategies.registry import strategies_of
from services.planner.upkeep import deletions, schedules
from services.planner.upkeep.deletions import Deletions
from services.planner.upkeep.lost_messages import HeldMessages, Orphans
from services.runtime.tasks import cancelled
from services.shared.budgets.spending import KeySpending
from services.shared.runs.pages.registry import load_pages
from services.shared.tools.catalogue import Catalogue

logger = structlog.get_logger(__name__)

CONTROL_SLOTS = SESSION_SLOTS = 256
"""Messages of people, timers and sessions in work at once."""


def build_parts(
    bus: Bus,
    settings: PlannerSettings,
    agents: Mapping[str, Agent],
    model: Model,
    default_model: str,
    catalogue: Catalogue,
    direct_calls: DirectCalls,
) -> Parts:
    """Build what the handlings share. Nothing connects here.

    `direct_calls`: until it is started, all calls of tools go through CALLS.
    """
    deployment = _deployment(settings, agents, default_model)
    session_logs = SessionLogs(bus)
    logs = RunLogs(bus, session_logs, deployment.strategies.of)
    return Parts(
        bus=bus,
        rules=Rules(
            strategy=deployment.strategies[DEFAULT_STRATEGY],
            max_repairs=settings.max_repairs,
            max_provider_failures=settings.max_provider_failures,
            model_total_s=settings.model_total_s,
            max_characters=settings.max_context_tokens * CHARACTERS_PER_TOKEN,
        ),
        logs=logs,
        sessions=Sessions(bus, logs, session_logs),
        model_requests=ModelRequests(
            model, deployment, catalogue, ImageLoader(bus), bus, load_pages(settings.pages_file)
        ),
        direct_calls=direct_calls,
        chunks=ChunkWriter(bus),
        call_places=CallPlaces(bus),
        key_spending=KeySpending(bus),
    )


def _deployment(settings: PlannerSettings, agents: Mapping[str, Agent], default_model: str) -> Deployment:
    return Deployment(
        default_model,
        agents,
        strategies_of(settings),
        settings.reasoning_effort,
        settings.triage_model,
        tuple(settings.fallback_models),
        settings.action_format,
        settings.action_transport,
        vision_support_of(settings),
        tuple(settings.models),
        lambda model: settings.use_native_reasoning and reasons(model, settings.model_reasoning),
    )


def profiles_of(settings: PlannerSettings, agents: Mapping[str, Agent], default_model: str) -> list[ModelProfile]:
    """Describe all models that runs may use, for the gateway."""
    deployment = _deployment(settings, agents, default_model)
    return resolution.profiles(deployment.vision_support, agents, default_model, deployment.named_models())


def models_of(settings: PlannerSettings, environment: Mapping[str, str]) -> ByProvider:
    """Return the client of all models. `environment` holds the keys of providers."""
    endpoints = Endpoints(
        environment=environment,
        api_base=settings.model_api_base,
        api_key=settings.model_api_key.get_secret_value() if settings.model_api_key else None,
        servers=settings.model_servers,
        reasoning=settings.model_reasoning,
    )
    return ByProvider(endpoints, Limits(reply=settings.model_reply_bytes))


def vision_support_of(settings: PlannerSettings) -> resolution.VisionSupport:
    """Return which models take images. The demo model takes them, and names them in its answer."""

    def takes_images(model: str) -> bool:
        known = known_model(model)
        return model == demo.NAME or (known is not None and known.vision)

    return resolution.VisionSupport(takes_images, settings.model_vision, settings.vision, settings.vision_context)


def pullers(bus: Bus, planner: Planner, settings: PlannerSettings) -> list[PullConsumer]:
    """Return the pull consumers of the planner's messages.

    Each consumer has slots of its own, so that requests of people never wait behind model calls. Tenants share the
    slots of each consumer.
    """
    return [
        PullConsumer(bus, stream, consumer, planner.on_message, slots, subjects.tenant_of)
        for stream, consumer, slots in (
            (subjects.INBOX, PLANNER_CONTROL, CONTROL_SLOTS),
            (subjects.INBOX, PLANNER_INBOX, settings.planner_slots),
            (subjects.INBOX, PLANNER_SESSION, SESSION_SLOTS),
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
    profiles = profiles_of(settings, agents, chosen.model)
    models = models_of(settings, os.environ)
    await models.warm(profile.model for profile in profiles)
    catalogue = await Catalogue(bus).start()
    max_waiting = min(settings.planner_slots, settings.planner_request_slots) // 2
    direct_calls = await DirectCalls(bus, max_waiting=max_waiting).start()
    model = WithoutRefusedFields(models)
    parts = build_parts(bus, settings, agents, model, chosen.model, catalogue, direct_calls)
    planner = Planner(parts)
    published = await resolution.publish_profiles(bus, profiles)  # Who finds the planner ready may name its models.
    background = [
        bus.tasks.keep("retention_sweep", lambda: deletions.watch(bus, settings.retention_days)),
        bus.tasks.keep("orphaned_messages", lambda: Orphans(bus, planner.on_message, settings.retention_days).watch()),
        bus.tasks.keep("deletions", lambda: Deletions(bus).carry_out_for_ever()),
        bus.tasks.keep("schedules", lambda: schedules.watch(bus)),
        bus.tasks.keep("model_profiles", lambda: resolution.keep_published(bus, profiles, is_published=published)),
    ]
    prompts = await Prompts(bus, parts.logs, parts.model_requests).start()
    consumers = pullers(bus, planner, settings)
    held_messages = await HeldMessages(bus, consumers).start()
    running = [await puller.start() for puller in consumers]
    try:
        yield
    finally:
        await prompts.stop()
        await direct_calls.stop()
        await cancelled(*background)
        await asyncio.gather(*(puller.stop(settings.graceful_timeout_s) for puller in running))
        await held_messages.stop()
        await catalogue.stop()
        await models.aclose()
