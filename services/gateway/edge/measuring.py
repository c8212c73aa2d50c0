"""The metrics of the gateway: `/metrics`, for callers with the right `operate`, since its port is open to clients."""

import time
from collections.abc import MutableMapping
from typing import Any

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from services.gateway.edge.routing import needs, new_router
from services.runtime.health import Health
from services.runtime.http_server import AsgiApp, Receive, Scope, Send
from services.shared import metrics

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
                metrics.HTTP_REQUESTS.labels(method, route, message["status"]).inc()
                metrics.HTTP_SECONDS.labels(route).observe(time.monotonic() - began)
            await send(message)

        await app(scope, receive, sent)

    return measure
