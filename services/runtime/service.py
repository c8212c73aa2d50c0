"""Run a service as a FastStream application.

FastStream owns start-up, shutdown, health over HTTP, request handlers and the AsyncAPI document; the paths on which a run depends use
nats-py on the same connection.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import structlog
import uvloop
from faststream import FastStream
from faststream.asgi import AsgiFastStream
from faststream.nats import NatsBroker

from . import collector
from .bus import Bus
from .health import Health, announce, withdraw
from .logs import configure_logging
from .settings import BusSettings
from .streams import provision

logger = structlog.get_logger(__name__)

Broker = NatsBroker
"""FastStream's broker, under a name that a service may use without knowing FastStream."""

Work = Callable[[Bus, Broker, Health], AbstractAsyncContextManager[None]]
"""A service's work: entered once NATS is connected and provisioned, left before the connection is closed."""


def build_service(
    name: str, settings: BusSettings, work: Work, health: Health | None = None, *, serves_first: bool = False
) -> AsgiFastStream:
    """Compose the application; nothing connects yet.

    `serves_first`: HTTP is answered at once and the work begins when NATS is there, instead of the other way round.
    """
    health = health or Health(Bus(name, settings))
    bus = health.bus
    # apply_types and declare are FastStream's to keep out of our streams: every subscriber of ours says declare=False.
    broker = NatsBroker(**bus.client_options(), graceful_timeout=settings.graceful_timeout_s, logger=None)
    stack = AsyncExitStack()

    async def start() -> None:
        bus.attach(await broker.connect())
        await provision(bus)
        await stack.enter_async_context(work(bus, broker, health))
        micro = await announce(bus)
        stack.push_async_callback(withdraw, micro)
        collector.calm()
        health.started = True
        logger.info("service_started")

    async def stop() -> None:
        health.started = False
        await stack.aclose()
        logger.info("service_stopped")

    before, after = ([], [start]) if serves_first else ([start], [])
    app = FastStream(broker, on_startup=before, after_startup=after, on_shutdown=[stop], logger=None)
    return app.as_asgi(asgi_routes=[("/livez", health.livez), ("/readyz", health.readyz)], asyncapi_path="/docs/asyncapi")


def run_service(name: str, settings: BusSettings, work: Work) -> None:
    """Run until SIGTERM or SIGINT."""
    configure_logging(name, settings)
    app = build_service(name, settings, work)
    options: dict[str, Any] = {"host": settings.health_host, "port": str(settings.health_port), "access_log": "false"}
    uvloop.run(app.run(log_level=logging.WARNING, run_extra_options=options))
