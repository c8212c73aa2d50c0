"""Compose the gateway; nothing connects here."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse

from contracts.tools import ToolSpec
from services.gateway.http_connection import connections
from services.gateway.routes import artifacts
from services.gateway.routes.openapi import describe
from services.gateway.routes.runs import Gateway, closed, router
from services.gateway.stored_runs.deletions import Deletions
from services.gateway.stored_runs.index import RunIndex
from services.gateway.stored_runs.reader import Runs
from services.gateway.submissions.accept import Asking
from services.gateway.submissions.images import Images
from services.gateway.submissions.models import Models
from services.gateway.submissions.quota import OpenRuns
from services.gateway.submissions.request_body import Questions
from services.gateway.submissions.submit import Intake
from services.messaging.connection import Bus
from services.messaging.nats_link import NatsLink
from services.runtime.health import VERSION, Health
from services.runtime.http_server import HttpServer
from services.shared.artifacts.client import ArtifactClient
from services.shared.tool_catalogue import Catalogue

from .auth import build_guard
from .errors import add_handlers
from .event_stream import OpenStreams
from .settings import GatewaySettings

_WELCOME = """This is a Runwire gateway. It speaks HTTP and JSON; /openapi.json describes it.

Ask something:

  runwire run "What is 17*23?"
  curl -s <this address>/chat -H 'Content-Type: application/json' -d '{"query": "What is 17*23?"}'
"""


def build_app(settings: GatewaySettings, bus: Bus, tools: Callable[[], Mapping[str, ToolSpec]]) -> FastAPI:
    """Return the application; `app.state.gateway` holds its parts. Raises StartRefused."""
    # The interactive documents that FastAPI offers load scripts from elsewhere, which would run beside the caller's
    # key.
    app = FastAPI(
        title="Runwire",
        version=VERSION,
        description="Runs of LLM agents: ask, watch, stop.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(closed)],
    )
    deletions = Deletions(bus)
    runs, streams = Runs(bus, deletions), OpenStreams(settings.max_streams, settings.max_streams_per_tenant)
    intake = Intake(bus, runs, OpenRuns(bus, settings.max_open_runs), settings.accept_wait_s)
    store = ArtifactClient(bus, patience_s=settings.accept_wait_s)
    app.state.gateway = Gateway(
        settings=settings,
        bus=bus,
        guard=build_guard(settings),
        runs=runs,
        intake=intake,
        asking=Asking(Questions(settings), intake, Models(bus), Images(store, settings), streams),
        deletions=deletions,
        index=RunIndex(bus, deletions),
        artifacts=store,
        tools=tools,
        streams=streams,
    )
    app.add_api_route("/", _welcome, include_in_schema=False)
    app.include_router(router)
    app.include_router(artifacts.router)
    add_handlers(app)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


async def _welcome() -> PlainTextResponse:
    """Answer a browser that opens the address of the gateway itself."""
    return PlainTextResponse(_WELCOME)


def build_server(settings: GatewaySettings) -> HttpServer:
    """Return the service with its HTTP application in front. Raises StartRefused."""
    link = NatsLink(Bus("gateway", settings))
    health = Health(link.name, link.problems)
    catalogue = Catalogue(link.bus)
    app = build_app(settings, link.bus, catalogue.live)
    health.on_stop.append(app.state.gateway.streams.close)

    @asynccontextmanager
    async def work(_health: Health) -> AsyncIterator[None]:
        await catalogue.start()
        try:
            yield
        finally:
            await catalogue.stop()

    return HttpServer(
        link, health, work, app, host=settings.host, port=settings.port, connections=connections(settings)
    )
