"""Schedules and webhooks through the client, at a gateway without a planner."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from contracts.wire.ids import new_id
from runwire import Client, RunwireError
from runwire.client import webhook_headers
from runwire.errors import IdempotencyConflict, NotFound
from tests.support.gateways import Served


async def test_a_schedule_from_its_beginning_to_its_end(served: Served) -> None:
    """Added once for its key, listed, shown and deleted."""
    async with Client(served.url) as client:
        key = new_id()
        for _ in range(2):
            made = await client.add_schedule(
                "Now?", cron="0 2 * * *", time_zone="Asia/Tokyo", name="night", idempotency_key=key, session_id="nights"
            )
        assert all(each.endswith("T02:00:00+09:00") for each in made.next)
        assert made.run == {"query": "Now?", "session_id": "nights"}
        assert [each.schedule_id for each in await client.schedules()] == [made.schedule_id]
        assert (await client.schedule(made.schedule_id)).next == made.next
        with pytest.raises(IdempotencyConflict):
            await client.add_schedule("Then?", cron="0 2 * * *", idempotency_key=key)
        await client.delete_schedule(made.schedule_id)
        for gone in (client.schedule, client.delete_schedule):
            with pytest.raises(NotFound):
                await gone(made.schedule_id)


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


async def test_a_delivery_that_is_signed_by_the_sdk(served: Served) -> None:
    """It starts one run for its id."""
    async with Client(served.url) as client, httpx.AsyncClient(base_url=served.url) as sender:
        made = await client.add_schedule("Now?", webhook=True)
        assert made.secret is not None
        assert made.webhook_url is not None
        runs = set()
        for delivery in ("one", "one", None):
            headers = webhook_headers(made.secret, b"{}", delivery)
            runs.add((await sender.post(made.webhook_url, content=b"{}", headers=headers)).json()["run_id"])
        assert len(runs) == 2
