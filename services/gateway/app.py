"""Compose the gateway, with its metrics and the answers to errors. Nothing connects here.

`/metrics` is for callers with the right `operate`, since the gateway's port is open to clients.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, cast

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from services.gateway import catalogue, schedules
from services.gateway.artifacts import routes as artifacts
from services.gateway.edge import description, playground
from services.gateway.edge.http_connection import connection_class
from services.gateway.edge.origins import METHODS, Origins
from services.gateway.edge.routing import Addresses, needs, new_router
from services.gateway.errors import InvalidInput, NotFound, Problem, TryAgain
from services.gateway.parts import Parts, build_parts
from services.gateway.protocols.events import routes as events
from services.gateway.protocols.mcp import routes as mcp
from services.gateway.runs import control
from services.gateway.runs import routes as runs
from services.gateway.sessions import routes as sessions
from services.gateway.settings import GatewaySettings
from services.gateway.tables import proposals
from services.gateway.tables import routes as tables
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.nats_link import NatsLink
from services.runtime.health import VERSION, Health
from services.runtime.http_server import AsgiApp, HttpServer, Receive, Scope, Send
from services.runtime.tasks import cancelled
from services.shared import metrics
from services.shared.artifacts import errors
from services.shared.tools.catalogue import Catalogue

HANDLED = (Problem, RequestValidationError, HTTPException, BusError, errors.ArtifactFailed, ClientDisconnect)


async def _answer_to(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)  # Nobody reads it.
    return _problem_of(request, error).response()


def _problem_of(request: Request, error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return InvalidInput.of(error, 1)  # FastAPI puts the place (query, path, header) before the field's name.
        case HTTPException():
            return _of_http(request, error)
        case BusError():
            return TryAgain("The message bus does not answer.")
        case errors.ArtifactNotFound():
            return NotFound()
        case errors.ArtifactTooLarge():
            return Problem.other(413, "body_too_large", error.reason)
        case errors.ArtifactInvalid():
            return InvalidInput("", error.reason)
        case errors.StorageUnavailable():
            return TryAgain("The artifact store does not answer.")
    return Problem()


def _of_http(request: Request, error: HTTPException) -> Problem:
    """Translate an error of Starlette: an unknown address, or a method that its address does not have."""
    if error.status_code == NotFound.status:
        return NotFound()
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The methods of all routes of the address; Starlette names those of one route only.
        routes, scopes = request.app.routes, [{**request.scope, "method": method} for method in METHODS]
        allowed = (each for each in scopes if any(route.matches(each)[0] is Match.FULL for route in routes))
        headers["Allow"] = ", ".join(each["method"] for each in allowed)
    return Problem.other(error.status_code, HTTPStatus(error.status_code).name.lower(), str(error.detail), headers)


router = new_router("Gateway")


@router.get(
    "/metrics",
    dependencies=[needs("operate")],
    summary="What this gateway counts, for Prometheus",
    response_class=PlainTextResponse,
)
async def get_metrics(request: Request) -> Response:
    """Return all metrics in Prometheus' text format. Those of the other services are at their health ports."""
    health: Health = request.app.state.health
    return Response(health.metrics(), headers={"Cache-Control": "no-store"}, media_type=CONTENT_TYPE_LATEST)


def measured(app: AsgiApp) -> AsgiApp:
    """Return the application with its requests counted by route, and timed to the first byte of the answer.

    What no route matches is counted as `other`: a client may ask for any path.
    """

    async def measure(scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                route = scope["route"].path if "route" in scope else "other"
                method = scope["method"] if "route" in scope else "other"
                metrics.labelled(metrics.HTTP_REQUESTS, method, route, message["status"]).inc()
                metrics.labelled(metrics.HTTP_SECONDS, route).observe(time.monotonic() - began)
            await send(message)

        await app(scope, receive, sent)

    return measure


def answered(app: AsgiApp) -> AsgiApp:
    """Return the application with 503 for a request that is cancelled: a stopping gateway's graceful time is over."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await app(scope, receive, sent)
        except asyncio.CancelledError:
            if has_begun:
                raise
            await TryAgain(control.STOPPING).response()(scope, receive, send)

    return answer


_EVENTS_PATH = re.compile(rb"/v1/runs/([0-9a-f]{32})/events")
_ROUTES = {
    route.endpoint: route for route in (*runs.router.routes, *events.router.routes) if isinstance(route, APIRoute)
}


def straight(app: AsgiApp) -> AsgiApp:
    """Return the application with runs started and followed past FastAPI's routing, where the request has no query.

    FastAPI solves the dependencies of a route anew for each request: that takes as long as to accept a run. What a
    query says it checks, so such requests are left to it.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        path, method, followed = scope["raw_path"], scope["method"], None
        is_started = method == "POST" and path == b"/v1/runs"
        if scope["query_string"] or not (
            is_started or (method == "GET" and (followed := _EVENTS_PATH.fullmatch(path)) is not None)
        ):
            await app(scope, receive, send)
            return
        run = followed[1].decode() if followed is not None else ""
        scope["route"] = _ROUTES[events.run_events if run else runs.create_run]
        request, parts = Request(scope, receive, send), cast("Parts", scope["app"].state.parts)
        event_id = request.headers.get("last-event-id")
        try:
            await parts.guard.check(request)
            if run:
                answer = await events.run_events(run, parts, request.state.caller, event_id)
            else:
                request.state.caller.require("run")
                answer = await runs.create_run(parts, request, request.state.caller, event_id)
        except HANDLED as error:
            answer = await _answer_to(request, error)
        await answer(scope, receive, send)

    return call


NOUNS = (
    *(runs.router, control.router, runs.inside_router, sessions.router, sessions.task_router, schedules.router),
    *(runs.chat_router, catalogue.router, artifacts.router, tables.router, proposals.router),
    *(description.router, router, playground.router, playground.logins),
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
    for kind in (*HANDLED, Exception):
        app.add_exception_handler(kind, _answer_to)
    app.add_middleware(straight)
    app.add_middleware(answered)
    app.add_middleware(measured)
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
