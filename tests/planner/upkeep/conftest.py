"""Leaves nothing behind: the server is shared, and the planner of a later test would start the runs of schedules."""

from collections.abc import AsyncIterator

import pytest

from contracts.wire import keys, subjects
from services.messaging.kv import Bucket
from tests.support.buses import provisioned
from tests.support.nats_server import NatsServer


@pytest.fixture(autouse=True)
async def _leaves_nothing(nats_server: NatsServer) -> AsyncIterator[None]:
    """Remove the schedules of a test, with their timers, and what waits for a planner."""
    yield
    async with provisioned(nats_server.url) as bus:
        schedules = Bucket(bus, keys.RUNS_BUCKET)
        for key in await schedules.keys(keys.schedule_entry.all):
            await schedules.delete(key)
        for stream in (subjects.TIMERS, subjects.INBOX, subjects.REQUESTS):
            await bus.api(f"STREAM.PURGE.{stream}", {})
