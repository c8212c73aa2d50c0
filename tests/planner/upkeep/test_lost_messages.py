"""Messages that nobody handles any more: a killed planner's are delivered again, and a consumer's lost ones found."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from contracts.runs.requests import RunRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from runwire.client import Client
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery, PullConsumer
from services.messaging.streams import PLANNER_INBOX, PLANNER_REQUESTS
from services.planner.upkeep.lost_messages import HeldMessages, Orphans
from services.shared import metrics
from tests.support.buses import connected, provisioned
from tests.support.forgetful import forget_deliveries
from tests.support.nats_server import NatsServer
from tests.support.stack import Stack
from tests.support.waiting import wait_until


class Holder:
    """A planner that takes one message and never ends it."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.taken: list[Delivery] = []
        self.consumer = PullConsumer(bus, subjects.INBOX, PLANNER_INBOX, self._hold, 1)
        self.lists = HeldMessages(bus, [self.consumer])

    async def _hold(self, delivery: Delivery) -> bool:
        self.taken.append(delivery)
        await asyncio.Event().wait()
        return True

    async def take(self, message: str) -> str:
        """Take this message, which is published here, and return the subject of the list that holds it."""
        listed = asyncio.Queue[str]()

        async def on_list(message: object) -> None:
            if self.taken and self.taken[-1].reply in orjson.loads(getattr(message, "data", b"[]")):
                listed.put_nowait(getattr(message, "subject", ""))

        await self.bus.subscribe(subjects.held.all, on_list)
        await self.consumer.start()
        await self.lists.start()
        await self.bus.publish_surely(message, b"{}", new_id())
        return await listed.get()


@pytest.fixture
async def holders(own_nats_server: NatsServer) -> AsyncIterator[list[Holder]]:
    """Three planners, on a server where no other test has left a message."""
    async with AsyncExitStack() as stack:
        found = [Holder(await stack.enter_async_context(provisioned(own_nats_server.url))) for _ in range(3)]
        yield found
        for holder in found:
            await holder.lists.stop()
            await holder.consumer.stop(0)


@pytest.fixture
def message() -> str:
    return subjects.inbox("default", new_id(), "message")


async def test_the_messages_of_the_dead_are_delivered_again_once(holders: list[Holder], message: str) -> None:
    """Two others are there, and one of them gets the message."""
    dead, *others = holders
    await dead.take(message)
    for each in others:
        await each.consumer.start()
        await each.lists.start()
    await dead.bus.leave()
    await wait_until(lambda: others[0].taken or others[1].taken, what="the message is delivered again")
    [again] = others[0].taken + others[1].taken
    assert (again.subject, again.number) == (message, 2)
    info = await others[0].bus.api(f"CONSUMER.INFO.{subjects.INBOX}.{PLANNER_INBOX}", {})
    assert info["delivered"]["consumer_seq"] - info["ack_floor"]["consumer_seq"] <= 2, "delivered twice, no more"


async def test_a_planner_that_begins_later_finds_the_list(holders: list[Holder], message: str) -> None:
    """The only planner is killed, and another one is started."""
    dead, other, _ = holders
    await dead.take(message)
    await dead.bus.leave()
    await other.consumer.start()
    await other.lists.start()
    await wait_until(lambda: other.taken, what="the message is delivered again")


async def test_one_that_goes_on_is_counted_as_a_false_death(
    holders: list[Holder], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not subscribed for a while, as one that reconnects; its next list shows that it lives."""
    counted = list[int]()
    monkeypatch.setattr(metrics.FALSE_DEATHS, "inc", lambda: counted.append(1))
    living, other, _ = holders
    place = await living.take(message)
    await living.lists.stop()
    await other.consumer.start()
    await other.lists.start()
    await wait_until(lambda: other.taken, what="the message is delivered again")
    await living.bus.send(place, orjson.dumps(living.consumer.held))
    await wait_until(lambda: counted, what="the false death is counted")


async def test_a_list_without_a_change_is_hardly_stored(holders: list[Holder], message: str) -> None:
    """The others hear each list, and the server stores few of them."""
    holder, other, _ = holders
    await holder.take(message)
    heard = asyncio.Queue[object]()

    async def on_list(found: object) -> None:
        heard.put_nowait(found)

    await other.bus.subscribe(subjects.held.all, on_list)

    async def stored() -> int:
        return int((await other.bus.api(f"STREAM.INFO.{subjects.HELD}", {}))["state"]["last_seq"])

    before = await stored()
    for _ in range(9):
        await heard.get()
    assert await stored() - before < 9


def request(run: str) -> RunRequested:
    return RunRequested(run_id=run, tenant="default", requested_at=0, trace_id=run, query="What is 17*23?")


async def waiting(bus: Bus) -> int:
    return int((await bus.api(f"STREAM.INFO.{subjects.REQUESTS}", {}))["state"]["messages"])


async def test_accepted_runs_end_although_their_requests_are_never_delivered_again(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    """The planner finds the requests at its start, and leaves none behind."""
    runs = [new_id() for _ in range(3)]
    async with provisioned(own_nats_server.url) as bus:

        async def write() -> None:
            for run in runs:
                await bus.publish(subjects.request("default", run), request(run))

        await forget_deliveries(own_nats_server, subjects.REQUESTS, PLANNER_REQUESTS, write, len(runs))
    async with connected(own_nats_server.url) as bus:
        assert await waiting(bus) == len(runs)
        env = {"RUNWIRE_MODEL": "builtin/rehearsal"}
        with Stack(own_nats_server.url, tmp_path, env, planners=2, tool_runners=0) as stack:
            async with Client(stack.url) as client:
                assert {(await client.result(run)).status for run in runs} == {"done"}

            async def none_waits() -> bool:
                return await waiting(bus) == 0

            await wait_until(none_waits, timeout=90, what="the queue is empty")


async def test_what_waits_or_is_in_work_is_not_orphaned(own_nats_server: NatsServer) -> None:
    """Only what lies below the floor is."""

    async def begin(_delivery: Delivery) -> bool:
        raise AssertionError("the run was begun")

    async with provisioned(own_nats_server.url) as bus:
        for _ in range(3):
            run = new_id()
            await bus.publish(subjects.request("default", run), request(run))
        subscription = await bus.nc.jetstream().pull_subscribe_bind(PLANNER_REQUESTS, subjects.REQUESTS)
        first, _second = await subscription.fetch(2)
        await first.ack_sync()
        assert await Orphans(bus, begin, retention_days=30).sweep() == 0
        assert await waiting(bus) == 2
