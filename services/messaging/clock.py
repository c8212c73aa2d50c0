"""The time by the clock of NATS, which stamps every message: ages are computed with one clock, independent of ours."""

import time
from datetime import datetime

from contracts.wire import keys, subjects
from services.messaging.nats_connection import NatsConnection

_REFRESH_S = 60.0


class ServerClock:
    """The server's clock, read once a minute; in between our monotonic clock counts on."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self._ahead_s = 0.0
        self._read_at = float("-inf")

    async def forget(self) -> None:
        """Read the clock again: it may be another server."""
        self._read_at = float("-inf")

    async def now(self) -> float:
        """Return Unix seconds, at most the server's clock, and earlier by the delay of its answer. Raises BusError."""
        if time.monotonic() - self._read_at > _REFRESH_S:
            answer = await self._connection.api(f"STREAM.INFO.{subjects.bucket_stream(keys.CATALOGUE_BUCKET)}", {})
            self._read_at = time.monotonic()
            self._ahead_s = unix_seconds(answer["ts"]) - self._read_at
        return time.monotonic() + self._ahead_s


def unix_seconds(text: str) -> float:
    """Parse a time as NATS writes it, `2026-11-22T10:39:38.587724217Z`."""
    return datetime.fromisoformat(text).timestamp()
