"""Compose the gateway. Nothing connects here."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI

from services.messaging.connection import Bus
from services.messaging.nats_link import NatsLink
from services.runtime.health import VERSION, Health
from services.runtime.http_server import HttpServer
from services.runtime.tasks import cancelled
from services.shared import metrics
from services.shared.tools.catalogue import Catalogue

from .artifacts import routes as artifacts
from .catalogue import routes as catalogue
from .edge import description, measuring, playground
from .edge.addresses import Addresses
from .edge.error_handlers import add_error_handlers
from .edge.http_connection import connection_class
from .edge.origins import Origins
from .parts import Parts, build_parts
from .protocols.events import inside
from .protocols.events import routes as events
from .protocols.mcp import routes as mcp
from .runs import calls, chat, decisions
from .runs import routes as runs
from .schedules import routes as schedules
from .sessions import routes as sessions
from .sessions import task_routes as tasks
from .settings import GatewaySettings
from .tables import proposals
from .tables import routes as tables

NOUNS = (
    *(runs.router, decisions.router, inside.router, sessions.router, tasks.router, schedules.router),
    *(chat.router, calls.router, catalogue.router, artifacts.router, tables.router, proposals.router),
    *(description.router, measuring.router, playground.router, playground.logins),
)
PROTOCOLS = (events.router, mcp.router)
"""How clients ask and follow runs. A further protocol is a folder of `protocols`, and its router here."""


def build_app(parts: Parts, protocols: Sequence[APIRouter] = PROTOCOLS) -> FastAPI:
    """Return the HTTP application."""
    # No interactive documents: FastAPI's load scripts from another origin, which would run beside the caller's key.
    app = FastAPI(
        title="Runwire",
        version=VERSION,
        description="Runs of LLM agents: ask, watch, stop.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        servers=[{"url": url}] if (url := parts.settings.public_url) else None,
        dependencies=[Depends(parts.guard.check)],
    )
    app.state.parts = parts
    for router in (*NOUNS, *protocols):
        app.include_router(router)
    add_error_handlers(app)
    app.add_middleware(measuring.measured)
    app.openapi = lambda: description.openapi(app)  # type: ignore[method-assign]
    return app


def build_server(settings: GatewaySettings) -> HttpServer:
    """Return the service with its HTTP application. Raises StartRefused."""
    link = NatsLink(Bus("gateway", settings))
    health = Health(link.name, link.problems, link.warnings)
    live = Catalogue(link.bus)
    parts = build_parts(settings, link.bus, live.live)
    health.on_stop.append(parts.streams.close)
    health.checks["api_keys"] = parts.guard.keys.problem

    @asynccontextmanager
    async def work(_health: Health) -> AsyncIterator[None]:
        await live.start()
        keys = link.bus.tasks.keep("api_keys", parts.guard.keys.watch) if settings.api_keys_file else None
        try:
            yield
        finally:
            await cancelled(keys)
            await live.stop()

    app, origins, addresses = build_app(parts), Origins(settings.cors_origins), Addresses(settings.public_url)
    app.state.health = health
    metrics.OPEN_STREAMS.set_function(lambda: len(parts.streams))
    protocol = connection_class(settings, origins)
    return HttpServer(
        link,
        health,
        work,
        app,
        host=settings.host,
        port=settings.port,
        keep_alive_s=settings.keep_alive_s,
        connections=protocol,
        guard=lambda app: addresses.guard(origins.guard(app)),
    )
