"""A service's connection to NATS as a process sees it: connect, wait for the streams, announce, report problems."""

import asyncio
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from urllib.parse import urlsplit

import structlog
from nats.micro.service import Service, ServiceConfig

from contracts.wire.operation import NOT_CONNECTED
from services.messaging.connection import Bus
from services.messaging.errors import NATS_ERRORS, Unavailable
from services.messaging.streams import missing
from services.runtime.health import VERSION, Health
from services.runtime.service import run_service
from services.runtime.settings import BusSettings

logger = structlog.get_logger(__name__)

_QUIET_S = 2.0
"""Seconds without NATS, or without the streams, before the log says that the service waits for it."""
_CHECK_S = 0.25
_PROVISION = "python -m services.messaging.provisioner"


class NatsLink:
    """The connection of one service, from start to end."""

    def __init__(self, bus: Bus) -> None:
        """Compose it; nothing connects yet."""
        self.bus = bus
        self.name = bus.name
        self.settings = bus.settings
        self._micro: Service | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._missing: list[str] = []

    async def connect(self) -> None:
        """Wait for NATS without a time limit."""
        warning = asyncio.get_running_loop().call_later(
            _QUIET_S, partial(logger.warning, "nats_awaited", servers=_addresses(self.settings.nats_url))
        )
        try:
            await self.bus.connect()
        finally:
            warning.cancel()

    async def await_provisioned(self) -> None:
        """Wait for the streams as this version needs them, and start to watch whether writes are stored (`storage`)."""
        loop = asyncio.get_running_loop()
        logs_at = loop.time() + _QUIET_S
        while True:
            try:
                self._missing = await missing(self.bus)
            except Unavailable as error:
                self._missing = [str(error)]
            if not self._missing:
                break
            if loop.time() > logs_at:
                logger.warning("provisioning_awaited", missing=self._missing, command=_PROVISION)
                logs_at = math.inf
            await asyncio.sleep(_CHECK_S)
        await self.bus.until_answered(self.bus.clock.read)
        self._watching = [
            self.bus.tasks.keep("storage_probe", self.bus.storage.watch),
            self.bus.tasks.keep("clock", self.bus.clock.watch),
        ]

    async def announce(self) -> None:
        """Announce the service to `nats micro ls` and `$SRV.PING`, with the requests that it answers."""
        about = self.bus.clock.about
        if self.bus.answered:
            about["subjects"] = " ".join(sorted(self.bus.answered))
        config = ServiceConfig(
            name=f"runwire-{self.name}", version=VERSION, description=f"Runwire {self.name}", metadata=about
        )
        self._micro = Service(self.bus.nc, config)
        with suppress(*NATS_ERRORS):  # If NATS is unavailable now, the subscriptions begin with the reconnect.
            await self._micro.start()

    async def withdraw(self) -> None:
        """Withdraw the announcement, if NATS is still reachable."""
        for task in self._watching:
            task.cancel()
        if self._micro is not None:
            with suppress(*NATS_ERRORS):
                await self._micro.stop()

    async def leave(self) -> None:
        """Close the connection."""
        await self.bus.leave()

    def problems(self) -> list[str]:
        """Return problems of the connection and background tasks that have died; empty when all is well."""
        reason = self.bus.refused or f"no NATS answers at {', '.join(_addresses(self.settings.nats_url))}"
        found = [] if self.bus.is_connected else [f"{NOT_CONNECTED}: {reason}"]
        if self.bus.denied:
            found.append(f"NATS denied a right: {self.bus.denied}")
        if self._missing:
            found.append(f"NATS is not provisioned ({_PROVISION}): {'; '.join(self._missing)}")
        return found + self.bus.storage.problems() + self.bus.tasks.problems()

    def warnings(self) -> list[str]:
        """Return what should be mended although the service works: a wrong clock of this machine."""
        return [warning] if (warning := self.bus.clock.warning()) else []


Work = Callable[[Bus, Health], AbstractAsyncContextManager[object]]
"""A service's work: entered once NATS is connected and provisioned, left before the connection is closed."""


def run_on_nats(name: str, settings: BusSettings, work: Work) -> None:
    """Run a service until SIGTERM or SIGINT."""
    link = NatsLink(Bus(name, settings))
    run_service(link, lambda health: work(link.bus, health))


def _addresses(nats_url: str) -> list[str]:
    """Return the addresses of the servers, without users and passwords."""
    return [urlsplit(url if "://" in url else f"nats://{url}").netloc.rpartition("@")[2] for url in nats_url.split(",")]
