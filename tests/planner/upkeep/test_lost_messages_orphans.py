"""Messages that a queue holds and its consumer takes for acknowledged, as after a disk that was full."""

from pathlib import Path

from contracts.runs.requests import RunRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from runwire.client import Client
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery
from services.messaging.streams import PLANNER_REQUESTS
from services.planner.upkeep.lost_messages import Orphans
from tests.support.buses import connected, provisioned
from tests.support.forgetful import forget_deliveries
from tests.support.nats_server import NatsServer
from tests.support.stack import Stack
from tests.support.waiting import wait_until


def request(run: str) -> bytes:
    asked = RunRequested(run_id=run, tenant="default", requested_at=0, trace_id=run, query="What is 17*23?")
    return asked.model_dump_json().encode()


async def forget(server: NatsServer, runs: list[str]) -> None:
    """Leave requests in the queue that the planner's consumer takes for acknowledged."""
    async with provisioned(server.url) as bus:

        async def write() -> None:
            for run in runs:
                await bus.publish(subjects.request("default", run), request(run))

        await forget_deliveries(server, subjects.REQUESTS, PLANNER_REQUESTS, write, len(runs))


async def waiting(bus: Bus) -> int:
    return int((await bus.api(f"STREAM.INFO.{subjects.REQUESTS}", {}))["state"]["messages"])


async def test_accepted_runs_end_although_their_requests_are_never_delivered_again(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    """The planner finds the requests at its start, and leaves none behind."""
    runs = [new_id() for _ in range(3)]
    await forget(own_nats_server, runs)
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
