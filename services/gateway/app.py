"""Compose the gateway. Nothing connects here."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI

from contracts.tools.messages import ToolSpec
from services.gateway.artifacts.images import InputImages
from services.gateway.artifacts.routes import ArtifactRoutes
from services.gateway.auth.key_budgets import KeyBudgets
from services.gateway.catalogue.agents import AgentRoutes
from services.gateway.catalogue.budget import BudgetRoutes
from services.gateway.catalogue.models import ModelProfiles
from services.gateway.catalogue.plans import PlanRoutes
from services.gateway.catalogue.tools import ToolRoutes
from services.gateway.edge import welcome
from services.gateway.edge.error_handlers import add_error_handlers
from services.gateway.edge.open_streams import OpenStreams
from services.gateway.edge.openapi import describe
from services.gateway.edge.request_body import RunInputReader
from services.gateway.protocols.events.routes import EventRoutes
from services.gateway.runs.accept import Submissions
from services.gateway.runs.chat import ChatRoutes
from services.gateway.runs.control import RunControl
from services.gateway.runs.control_answers import ControlAnswers, of_run, of_session
from services.gateway.runs.decisions import ControlRoutes
from services.gateway.runs.deletions import Deletions
from services.gateway.runs.index import RunIndex, SessionIndex
from services.gateway.runs.quota import RunQuota
from services.gateway.runs.reader import RunReader
from services.gateway.runs.routes import RunRoutes
from services.gateway.runs.writer import MessageWriter
from services.gateway.schedules.routes import ScheduleRoutes
from services.gateway.schedules.schedules import Schedules
from services.gateway.schedules.webhooks import Webhooks
from services.gateway.sessions.control import SessionControl
from services.gateway.sessions.reader import SessionReader
from services.gateway.sessions.routes import SessionRoutes
from services.gateway.sessions.task_routes import TaskRoutes
from services.gateway.sessions.tasks import TaskReader
from services.messaging.connection import Bus
from services.messaging.nats_link import NatsLink
from services.runtime.health import VERSION, Health
from services.runtime.http_server import HttpServer
from services.runtime.tasks import cancelled
from services.shared.artifacts.client import ArtifactClient
from services.shared.tools.catalogue import Catalogue

from .artifacts.access import ArtifactAccess
from .artifacts.inlining import Inliner
from .auth.guard import build_guard
from .edge.http_connection import connection_class
from .edge.origins import Origins
from .settings import GatewaySettings

LiveTools = Callable[[], Mapping[str, ToolSpec]]
"""Returns the present tools by name."""


class Gateway:
    """The parts of a gateway, each built from those above it."""

    def __init__(self, settings: GatewaySettings, bus: Bus, tools: LiveTools) -> None:
        """Raises StartRefused."""
        self.settings, self.bus, self.tools = settings, bus, tools
        self.guard = build_guard(settings)
        self.streams = OpenStreams(settings.max_streams, settings.max_streams_per_tenant)
        self.deletions = Deletions(bus)
        self.runs = RunReader(bus, self.deletions)
        self.sessions = SessionReader(bus, self.runs, self.deletions)
        self.index = RunIndex(bus, self.deletions)
        self.artifacts = ArtifactClient(bus, patience_s=settings.accept_wait_s)
        self.access = ArtifactAccess(self.artifacts, self.runs, self.sessions)
        self.inliner = Inliner(self.artifacts)
        self.writer = MessageWriter(bus, settings.accept_wait_s)
        self.control = RunControl(self.writer, ControlAnswers(bus, of_run))
        self.session_control = SessionControl(self.writer, self.deletions, ControlAnswers(bus, of_session))
        self.run_inputs = RunInputReader(settings)
        self.images = InputImages(self.artifacts, self.access, settings)
        self.models = ModelProfiles(bus)
        self.budgets = KeyBudgets(bus, settings.accept_wait_s)
        self.submissions = Submissions(
            bus,
            self.run_inputs,
            self.runs,
            self.sessions,
            self.models,
            self.budgets,
            RunQuota(bus, self.runs, settings.max_open_runs),
            self.images,
            self.writer,
            self.streams,
        )
        self.schedules = Schedules(bus, self.sessions, self.models, self.writer, settings.max_body_bytes)
        self.webhooks = Webhooks(bus, self.submissions)

    def routers(self) -> list[APIRouter]:
        """Return all routes."""
        settings, inliner = self.settings, self.inliner
        events = EventRoutes(self.bus, self.runs, inliner, self.streams, settings.heartbeat_s)
        runs = RunRoutes(
            self.submissions,
            self.control,
            self.runs,
            self.index,
            self.deletions,
            inliner,
            events,
            self.streams,
            settings.max_body_bytes,
        )
        artifacts = ArtifactRoutes(self.artifacts, self.access, self.runs, self.deletions, settings.max_upload_bytes)
        chat = ChatRoutes(self.submissions, self.runs, inliner, self.streams)
        control = ControlRoutes(self.run_inputs, self.control, self.runs, self.images, self.models, self.streams)
        sessions = SessionRoutes(
            self.bus,
            self.sessions,
            SessionIndex(self.bus),
            self.session_control,
            self.streams,
            settings.heartbeat_s,
            settings.max_body_bytes,
        )
        tasks = TaskRoutes(
            self.sessions,
            TaskReader(self.runs, self.sessions),
            self.session_control,
            self.streams,
            settings.max_body_bytes,
        )
        schedules = ScheduleRoutes(self.schedules, self.webhooks)
        tools, agents = ToolRoutes(self.bus, self.tools), AgentRoutes(self.models)
        plans = PlanRoutes(self.tools, settings.bounds(), settings.max_body_bytes)
        budget = BudgetRoutes(self.budgets)
        own = (runs, control, sessions, tasks, schedules, events, chat, plans, tools, agents, artifacts, budget)
        return [*(each.router() for each in own), welcome.router]


def build_app(gateway: Gateway) -> FastAPI:
    """Return the HTTP application."""
    # No interactive documents: FastAPI's load scripts from another origin, which would run beside the caller's key.
    app = FastAPI(
        title="Runwire",
        version=VERSION,
        description="Runs of LLM agents: ask, watch, stop.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(gateway.guard.check)],
    )
    app.state.gateway = gateway
    for router in gateway.routers():
        app.include_router(router)
    add_error_handlers(app)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


def build_server(settings: GatewaySettings) -> HttpServer:
    """Return the service with its HTTP application. Raises StartRefused."""
    link = NatsLink(Bus("gateway", settings))
    health = Health(link.name, link.problems)
    catalogue = Catalogue(link.bus)
    gateway = Gateway(settings, link.bus, catalogue.live)
    health.on_stop.append(gateway.streams.close)
    health.checks["api_keys"] = gateway.guard.keys.problem

    @asynccontextmanager
    async def work(_health: Health) -> AsyncIterator[None]:
        await catalogue.start()
        keys = link.bus.tasks.keep("api_keys", gateway.guard.keys.watch()) if settings.api_keys_file else None
        try:
            yield
        finally:
            await cancelled(keys)
            await catalogue.stop()

    app, origins = build_app(gateway), Origins(settings.cors_origins)
    protocol = connection_class(settings, origins)
    return HttpServer(
        link, health, work, app, host=settings.host, port=settings.port, connections=protocol, guard=origins.guard
    )
