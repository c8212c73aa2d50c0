"""Schedules and webhooks through the client, at a gateway without a planner."""

from datetime import UTC, datetime, timedelta

import pytest

from runwire import Client, RunwireError
from tests.support.gateways import Served


async def test_a_time_of_python(served: Served) -> None:
    """With a zone of its own, or local time."""
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    async with Client(served.url) as client:
        made = await client.add_schedule("Now?", at=at)
        assert [datetime.fromisoformat(each) for each in made.next] == [at]
        local = await client.add_schedule("Now?", at=at.replace(tzinfo=None), time_zone="UTC")
        assert local.next == made.next
        with pytest.raises(RunwireError) as refused:
            await client.add_schedule("Now?", at=at.replace(tzinfo=None))
        assert [each["field"] for each in refused.value.errors] == ["at"]
