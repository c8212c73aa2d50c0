"""Run a service as a FastStream application.

FastStream owns start-up, shutdown, health over HTTP and request handlers; the paths on which a run depends use nats-py on the same
connection. Its AsyncAPI page stays off: it lets anybody publish with the rights of the service. contracts/asyncapi.json is the document.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext
from typing import Any, cast
from urllib.parse import urlsplit

import structlog
import uvloop
from faststream import FastStream
from faststream.asgi import AsgiFastStream
from faststream.nats import NatsBroker
from faststream.nats.security import NatsUserPassword
from nats.aio.client import Client
from nats.errors import Error as NatsError

from . import collector
from .bus import Bus
from .health import Health, announce, withdraw
from .logs import configure_logging
from .settings import BusSettings
from .streams import provision
from .watchdog import Watchdog

logger = structlog.get_logger(__name__)


class Broker(NatsBroker):
    """FastStream's broker on a bus, under a name that a service may use without knowing FastStream."""

    def __init__(self, bus: Bus) -> None:
        options, login = bus.client_options(), bus.login()
        for name in login:
            del options[name]
        # FastStream has a form of its own for user and password, and takes them in no other.
        security = NatsUserPassword(login["user"], login["password"]) if login else None
        super().__init__(**options, security=security, graceful_timeout=bus.settings.graceful_timeout_s, logger=None)
        self._bus = bus

    def _log_connection_broken(self, error_cb: Any = None) -> Any:
        """Leave errors to the bus: FastStream would give up for good, with a traceback, once a login was refused."""
        return error_cb

    async def stop(self, *reason: Any) -> None:
        """Stop as FastStream does, and without NATS too: draining needs a server that is there."""
        try:
            await super().stop(*reason)
        except (NatsError, TimeoutError, OSError) as error:
            logger.info("nats_left_while_away", error=repr(error))
        finally:
            await self._bus.leave()


_SILENT_S = 2.0
"""NATS may take so long to be there before the log says that it is waited for."""

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
    broker = Broker(bus)
    stack = AsyncExitStack()

    async def start() -> None:
        bus.attach(await _connected(broker, settings, stoppable=not serves_first))
        await provision(bus)
        stack.callback(bus.tasks.keep("storage_probe", bus.storage.watch()).cancel)
        await stack.enter_async_context(work(bus, broker, health))
        micro = await announce(bus, sorted(cast("Any", each).subject.template for each in broker.subscribers))
        stack.push_async_callback(withdraw, micro)
        collector.calm()
        if health.watchdog is not None:
            health.watchdog.start()
        health.started = True
        logger.info("service_started")

    async def stop() -> None:
        health.started = False
        await stack.aclose()
        if health.watchdog is not None:
            health.watchdog.stop()
        logger.info("service_stopped")

    before, after = ([], [start]) if serves_first else ([start], [])
    app = FastStream(broker, on_startup=before, after_startup=after, on_shutdown=[stop], logger=None)
    return app.as_asgi(asgi_routes=[("/livez", health.livez), ("/readyz", health.readyz)])


def run_service(name: str, settings: BusSettings, work: Work) -> None:
    """Run until SIGTERM or SIGINT."""
    configure_logging(name, settings)
    app = build_service(name, settings, work, Health(Bus(name, settings), watchdog=Watchdog(settings.stall_exit_s)))
    options: dict[str, Any] = {"host": settings.health_host, "port": str(settings.health_port), "access_log": "false"}
    uvloop.run(app.run(log_level=logging.WARNING, run_extra_options=options))


async def _connected(broker: Broker, settings: BusSettings, *, stoppable: bool) -> Client:
    """Wait for NATS as long as it takes. `stoppable`: nobody else stops the process meanwhile."""
    connecting = asyncio.ensure_future(broker.connect())
    with _ended_by_signals() if stoppable else nullcontext():
        done, _ = await asyncio.wait({connecting}, timeout=_SILENT_S)
        if not done:
            logger.warning("nats_awaited", servers=_places(settings.nats_url))
        return await connecting


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGINT end the process at once: uvicorn only notes them while the application starts, and nothing has begun yet."""
    loop, kept = asyncio.get_running_loop(), {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in kept:
        loop.add_signal_handler(number, _end)
    try:
        yield
    finally:
        for number, handler in kept.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _end() -> None:
    logger.info("service_stopped", before="NATS was there")
    sys.stderr.flush()
    os._exit(0)  # an exception would go through FastStream and uvicorn, which take it for a failure and print it


def _places(nats_url: str) -> list[str]:
    """Where the servers are, without what a URL may say of users and passwords."""
    return [urlsplit(url if "://" in url else f"nats://{url}").netloc.rpartition("@")[2] for url in nats_url.split(",")]
