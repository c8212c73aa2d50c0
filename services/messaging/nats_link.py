"""A service's connection to NATS as a process sees it: connect, provision, announce, report problems.

FastStream's broker and the bus share one connection. Request handlers use the broker; the paths on which a run depends
use nats-py.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, cast
from urllib.parse import urlsplit

import nats.micro
import structlog
from faststream.nats import NatsBroker
from faststream.nats.security import NatsUserPassword
from nats.micro.service import Service, ServiceConfig

from services.messaging.connection import Bus
from services.messaging.errors import NATS_ERRORS
from services.messaging.streams.provision import provision
from services.runtime.health import VERSION, Health
from services.runtime.service import run_service
from services.runtime.settings import BusSettings

logger = structlog.get_logger(__name__)

_QUIET_CONNECT_S = 2.0
"""Seconds without NATS before the log says that the service waits for it."""


class Broker(NatsBroker):
    """FastStream's broker on a bus, under a name that services can use without importing FastStream."""

    def __init__(self, bus: Bus) -> None:
        options, login = bus.client_options(), bus.login()
        for name in login:
            del options[name]
        # FastStream accepts user and password only in its own form.
        security = NatsUserPassword(login["user"], login["password"]) if login else None
        super().__init__(**options, security=security, graceful_timeout=bus.settings.graceful_timeout_s, logger=None)
        self._bus = bus

    def _log_connection_broken(self, error_cb: Any = None) -> Any:
        """Leave errors to the bus: after a refused login FastStream would give up with a traceback."""
        return error_cb

    async def stop(self, *reason: Any) -> None:
        """Stop like FastStream, but also without NATS: draining needs a reachable server."""
        try:
            await super().stop(*reason)
        except NATS_ERRORS as error:
            logger.info("nats_closed_while_unavailable", error=repr(error))
        finally:
            await self._bus.leave()


class NatsLink:
    """The connection of one service, from start to end."""

    def __init__(self, bus: Bus) -> None:
        """Compose it; nothing connects yet."""
        self.bus = bus
        self.name = bus.name
        self.settings = bus.settings
        # apply_types and declare are FastStream's to keep out of our streams: every subscriber of ours says
        # declare=False.
        self.broker = Broker(bus)
        self._micro: Service | None = None
        self._watching: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Wait for NATS without a time limit."""
        connecting = asyncio.ensure_future(self.broker.connect())
        done, _ = await asyncio.wait({connecting}, timeout=_QUIET_CONNECT_S)
        if not done:
            logger.warning("nats_awaited", servers=_addresses(self.settings.nats_url))
        self.bus.attach(await connecting)

    async def provision(self) -> None:
        """Create missing streams and consumers, and start to watch whether writes are stored (`storage`)."""
        await provision(self.bus)
        self._watching = self.bus.tasks.keep("storage_probe", self.bus.storage.watch())

    async def announce(self) -> None:
        """Announce the service to `nats micro ls` and `$SRV.PING`, with the request subjects that FastStream serves."""
        subjects = sorted(cast("Any", each).subject.template for each in self.broker.subscribers)
        about = {"subjects": " ".join(subjects)} if subjects else None
        config = ServiceConfig(
            name=f"runwire-{self.name}", version=VERSION, description=f"Runwire {self.name}", metadata=about
        )
        self._micro = await nats.micro.add_service(self.bus.nc, config)

    async def withdraw(self) -> None:
        """Withdraw the announcement, if NATS is still reachable."""
        if self._watching is not None:
            self._watching.cancel()
        if self._micro is not None:
            with suppress(*NATS_ERRORS):
                await self._micro.stop()

    def problems(self) -> list[str]:
        """Return problems of the connection and background tasks that have died; empty when all is well."""
        found = [] if self.bus.is_connected else ["NATS is not connected"]
        if self.bus.denied:
            found.append(f"NATS denied a right: {self.bus.denied}")
        return found + self.bus.storage.problems() + self.bus.tasks.problems()


Work = Callable[[Bus, Broker, Health], AbstractAsyncContextManager[None]]
"""A service's work: entered once NATS is connected and provisioned, left before the connection is closed."""


def run_on_nats(name: str, settings: BusSettings, work: Work) -> None:
    """Run a service until SIGTERM or SIGINT."""
    link = NatsLink(Bus(name, settings))
    run_service(link, lambda health: work(link.bus, link.broker, health))


def _addresses(nats_url: str) -> list[str]:
    """Return the addresses of the servers, without users and passwords."""
    return [urlsplit(url if "://" in url else f"nats://{url}").netloc.rpartition("@")[2] for url in nats_url.split(",")]
