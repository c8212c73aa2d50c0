"""Tools that are gone: their entries in the catalogue, and the consumers of their calls."""

import pytest

from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from runwire import tool
from services.messaging.connection import Bus
from services.messaging.streams import provision
from services.shared.tools import catalogue as reading
from services.shared.tools.catalogue import Catalogue
from services.tool_runner import call_consumers
from services.tool_runner.app import running
from services.tool_runner.discovery import catalogue_writer
from services.tool_runner.settings import ToolRunnerSettings
from tests.support.buses import connected
from tests.support.forgetful import forget_deliveries
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Serve, Start, fault_of


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue_writer, "TTL_S", 2)
    monkeypatch.setattr(catalogue_writer, "REFRESH_INTERVAL_S", 0.5)
    monkeypatch.setattr(reading, "_READ_BACK_S", 0.2)
    monkeypatch.setattr(reading, "_SETTLING_S", 0.0)
    monkeypatch.setattr(call_consumers, "_CHECK_INTERVAL_S", 0.3)


@tool(name="visitor", idempotent=True)
async def visitor() -> str:
    """Come and go."""
    return "hello"


async def has_consumer(bus: Bus, name: str) -> bool:
    """Whether the tool's calls have a consumer."""
    answer = await bus.api(f"CONSUMER.NAMES.{subjects.CALLS}", {})
    return subjects.calls_consumer(name) in (answer["consumers"] or [])


async def test_a_tool_that_is_gone_loses_its_consumer_and_gets_it_back(
    planner: Planner, start_runner: Start, serve_tools: Serve
) -> None:
    """A call in between fails as `tool_unavailable`, and one after the tool's return succeeds."""
    for _ in range(2):
        await start_runner(gone_tool_s=1.0, unavailable_s=0.5)
    stop = serve_tools(visitor)
    assert (await planner.call("visitor", {})).observation == "hello"
    digest = (await planner.spec("visitor")).digest()

    stop.set()

    async def gone() -> bool:
        return not await has_consumer(planner.bus, "visitor")

    await wait_until(gone, what="the consumer is removed")

    finished = await planner.call("visitor", {}, spec=digest)
    assert fault_of(finished).code == "tool_unavailable"

    await wait_until(gone, what="the consumer is removed again")
    serve_tools(visitor)
    await wait_until(lambda: "visitor" in planner.catalogue.live(), what="it is listed again")
    # A tool runner that has not noticed it yet may have removed the consumer once more.
    await wait_until(lambda: has_consumer(planner.bus, "visitor"), what="its calls have a consumer")
    assert (await planner.call("visitor", {})).observation == "hello"


async def test_calls_that_their_consumer_has_lost_get_an_outcome(own_nats_server: NatsServer) -> None:
    """As after a full disk. No instance serves the tool here, so they fail as `tool_unavailable`."""
    url = own_nats_server.url
    settings = ToolRunnerSettings(
        nats_url=url, discover_s=0.3, graceful_timeout_s=0.1, settling_s=0.5, unavailable_s=0.5
    )
    spec = ToolSpec(name="lost", idempotent=True)
    async with connected(url) as bus, connected(url, "tool_runner", settings) as runner:
        await provision(bus)
        asking = Planner(bus, Catalogue(bus))
        await asking.open_consumer("lost")
        digest = await asking.declare(spec)
        runs: list[str] = []

        async def write() -> None:
            runs.extend([await asking.request("lost", {}, spec=digest) for _ in range(2)])

        await forget_deliveries(own_nats_server, subjects.CALLS, subjects.calls_consumer("lost"), write, 2)
        await bus.barrier()
        await asking.acknowledged("lost")
        async with running(runner, settings, []):
            for run in runs:
                assert fault_of(await asking.outcome(run)).code == "tool_unavailable"
