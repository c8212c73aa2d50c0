"""The time by the clock of NATS, which stamps every message and fires every timer: deadlines are measured by it alone.

Rule 1: `contracts.wire.names.CLOCK`, from which a service takes all its times, follows the server's clock where it
differs by more than half a second. So a wrong clock of a machine ends nothing early or late.
Rule 2: a machine whose clock differs by more than two seconds is named, since its people and logs believe it.
"""

import asyncio
import time
from contextlib import suppress
from datetime import datetime

import structlog

from contracts.wire import keys, subjects
from contracts.wire.names import CLOCK, unix_ms
from contracts.wire.operation import CLOCK_METADATA
from services.messaging.errors import BusError
from services.messaging.nats_connection import NatsConnection
from services.runtime.tasks import is_set_within

logger = structlog.get_logger(__name__)

_EVERY_S = 10.0
_TOLERATED_S = 2.0


class ServerClock:
    """Lets `CLOCK` follow the server's clock."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self.about = {CLOCK_METADATA: ""}
        """The metadata of the service's announcement, in which the warning is kept up to date."""

    async def read(self) -> None:
        """Compare the clocks. Raises BusError."""
        asked = unix_ms()
        answer = await self._connection.api(f"STREAM.INFO.{subjects.bucket_stream(keys.CATALOGUE_BUCKET)}", {})
        CLOCK.follow(int(unix_seconds(answer["ts"]) * 1000), asked)

    async def watch(self) -> None:
        """Compare them every ten seconds and after each reconnect, maybe to another server, until cancelled."""
        again = asyncio.Event()

        async def on_reconnect() -> None:
            again.set()

        self._connection.on_reconnect.append(on_reconnect)
        while True:
            with suppress(BusError):
                await self.read()
            if (warning := self.warning()) and not self.about[CLOCK_METADATA]:
                logger.warning("clock_differs", finding=warning)
            self.about[CLOCK_METADATA] = warning
            await is_set_within(again, _EVERY_S)
            again.clear()

    def warning(self) -> str:
        """Return how far the machine's clock is off, as a sentence; empty: it is right."""
        ahead_s = time.time() - unix_ms() / 1000
        if abs(ahead_s) <= _TOLERATED_S:
            return ""
        side = "ahead of" if ahead_s > 0 else "behind"
        return f"the clock of this machine is {abs(ahead_s):,.1f} s {side} that of NATS, which counts: set one of them"


def unix_seconds(text: str) -> float:
    """Parse a time as NATS writes it, `2026-11-22T10:39:38.587724217Z`."""
    return datetime.fromisoformat(text).timestamp()
