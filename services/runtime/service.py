"""The life of a service: connect, wait for its streams, work until SIGTERM or SIGINT, stop in the reverse order.

Rule 1: `/livez` and `/readyz` are served from the start, even without NATS.
Rule 2: an error that keeps the work from starting ends the process with that error.
Rule 3: events of the log are past-tense keys with fields, one JSON object per line on stderr.
"""

import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Protocol, TextIO, cast

import structlog
import uvloop

from .health import Health, Watchdog, serve_health
from .settings import BusSettings
from .tasks import cancelled

_QUIET = (
    "LiteLLM",
    "LiteLLM Router",
    "LiteLLM Proxy",
    "openai",
    "httpx",
    "httpcore",
    "urllib3",
    "faststream",
    "uvicorn.access",
)
"""Loggers that print prompts, image bytes or every request at levels below WARNING.

They stay at WARNING, whatever RUNWIRE_LOG_LEVEL says.
"""
logger = structlog.get_logger(__name__)
_MAX_OPEN_FILES = 65_536


class BestEffortStream:
    """A stream whose write errors are ignored: a full disk for logs must not end the service."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, and ignore errors."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, and ignore errors."""
        with suppress(OSError):
            self._stream.flush()


def configure_logging(service: str, settings: BusSettings) -> None:
    """Send structlog and the standard library's loggers to stderr at the chosen level."""
    level = getattr(logging, settings.log_level.upper())
    renderer = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if settings.log_format == "console"
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", BestEffortStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(
        level=max(level, logging.WARNING), stream=sys.stderr, format="%(name)s: %(message)s", force=True
    )
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


class Link(Protocol):
    """The connection of a service to its message bus."""

    @property
    def name(self) -> str:
        """The service's name."""

    @property
    def settings(self) -> BusSettings:
        """The service's settings."""

    async def connect(self) -> None:
        """Wait for the server without a time limit."""

    async def await_provisioned(self) -> None:
        """Wait without a time limit until the server has what the service needs."""

    async def announce(self) -> None:
        """Announce the service."""

    async def withdraw(self) -> None:
        """Withdraw the announcement."""

    async def leave(self) -> None:
        """Close the connection, if there is one."""

    def problems(self) -> list[str]:
        """Return problems of the connection, as sentences."""

    def warnings(self) -> list[str]:
        """Return what an operator should mend although the connection works, as sentences."""


Work = Callable[[Health], AbstractAsyncContextManager[object]]
"""A service's work: entered once its link is connected and provisioned, left before the connection is closed."""


class Service:
    """One service in this process."""

    def __init__(self, link: Link, work: Work, health: Health) -> None:
        """Compose it; nothing connects yet."""
        self._link = link
        self._work = work
        self._health = health
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        """Connect, and start to work."""
        self._stack.push_async_callback(self._link.leave)
        await self._link.connect()
        await self._link.await_provisioned()
        await self._stack.enter_async_context(self._work(self._health))
        await self._link.announce()
        self._stack.push_async_callback(self._link.withdraw)
        collect_garbage_rarely()
        if self._health.watchdog is not None:
            self._health.watchdog.start()
        self._health.started = True
        logger.info("service_started")

    async def stop(self) -> None:
        """Stop the work, also where it has not started, and close the connection."""
        self._health.started = False
        await self._stack.aclose()
        if self._health.watchdog is not None:
            self._health.watchdog.stop()
        logger.info("service_stopped")


def run_service(link: Link, work: Work) -> None:
    """Run until SIGTERM or SIGINT. Raises the error that kept the work from starting."""
    configure_logging(link.name, link.settings)
    _open_many_files()
    health = Health(link.name, link.problems, link.warnings, watchdog=Watchdog(link.settings.stall_exit_s))
    uvloop.run(_run(Service(link, work, health), health, link.settings))


async def _run(service: Service, health: Health, settings: BusSettings) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)

    async def start() -> None:
        try:
            await service.start()
        except Exception:
            stopping.set()
            raise

    async with await serve_health(health, settings.health_host, settings.health_port):
        starting = asyncio.create_task(start())
        try:
            await stopping.wait()
            if starting.done():
                await starting
        finally:
            await cancelled(starting)
            await service.stop()


def _open_many_files() -> None:
    """Raise the limit of open files, often 1,024: each waiting model request and each listener is a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def collect_garbage_rarely() -> None:
    """Keep Python's garbage collector from pausing a service for a tenth of a second. Imported objects are excluded."""
    gc.collect()
    gc.freeze()
