"""Run a service as a FastStream application.

FastStream provides start-up, shutdown, health over HTTP and request handlers. The paths on which a run depends use
nats-py on the same connection. Its AsyncAPI page is off: it lets anybody publish with the rights of the service.
contracts/asyncapi.json is the document.
"""

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext, suppress
from typing import Any, Protocol

import structlog
import uvloop
from faststream import FastStream
from faststream.asgi import AsgiFastStream

from services.runtime import gc_tuning

from .health import Health
from .logs import configure_logging
from .settings import BusSettings
from .watchdog import Watchdog

logger = structlog.get_logger(__name__)

_MAX_OPEN_FILES = 65_536


class Link(Protocol):
    """The connection of a service to its message bus. `broker`: FastStream's."""

    @property
    def name(self) -> str:
        """The service's name."""
        ...

    @property
    def settings(self) -> BusSettings:
        """The service's settings."""
        ...

    @property
    def broker(self) -> Any:
        """FastStream's broker on the same connection."""
        ...

    async def connect(self) -> None:
        """Wait for the server without a time limit."""
        ...

    async def provision(self) -> None:
        """Create what the service needs on the server."""
        ...

    async def announce(self) -> None:
        """Announce the service."""
        ...

    async def withdraw(self) -> None:
        """Withdraw the announcement."""
        ...

    def problems(self) -> list[str]:
        """Return problems of the connection, as sentences."""
        ...


Work = Callable[[Health], AbstractAsyncContextManager[None]]
"""A service's work: entered once its link is connected and provisioned, left before the connection is closed."""


def build_service(link: Link, work: Work, health: Health, *, serves_first: bool = False) -> AsgiFastStream:
    """Compose the application; nothing connects yet.

    `serves_first`: HTTP is served at once and the work starts when NATS is reachable, instead of the other way round.
    """
    stack = AsyncExitStack()

    async def start() -> None:
        # Where HTTP is served first, the HTTP server handles signals meanwhile.
        with nullcontext() if serves_first else _ended_by_signals():
            await link.connect()
        await link.provision()
        await stack.enter_async_context(work(health))
        await link.announce()
        stack.push_async_callback(link.withdraw)
        gc_tuning.tune()
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
    app = FastStream(link.broker, on_startup=before, after_startup=after, on_shutdown=[stop], logger=None)
    return app.as_asgi(asgi_routes=[("/livez", health.livez), ("/readyz", health.readyz)])


def run_service(link: Link, work: Work) -> None:
    """Run until SIGTERM or SIGINT."""
    settings = link.settings
    configure_logging(link.name, settings)
    _open_many_files()
    app = build_service(link, work, Health(link.name, link.problems, watchdog=Watchdog(settings.stall_exit_s)))
    options: dict[str, Any] = {"host": settings.health_host, "port": str(settings.health_port), "access_log": "false"}
    uvloop.run(app.run(log_level=logging.WARNING, run_extra_options=options))


def _open_many_files() -> None:
    """Raise the limit of open files, often 1,024: each waiting model request and each listener is a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGINT end the process at once: nothing has started, and uvicorn would only note them."""
    loop, kept = (
        asyncio.get_running_loop(),
        {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)},
    )
    for number in kept:
        loop.add_signal_handler(number, _end)
    try:
        yield
    finally:
        for number, handler in kept.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _end() -> None:
    logger.info("service_stopped", before="NATS was reachable")
    sys.stderr.flush()
    os._exit(0)  # FastStream and uvicorn would print an exception as a failure
