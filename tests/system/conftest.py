"""Whole systems for tests: real processes on a nats-server of their own."""

import sys
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from services.messaging.connection import Bus
from tests.system import evidence
from tests.system.client import Client
from tests.system.deployment import Parts, Whole, deployed
from tests.system.strikes import for_one_test
from tests.system.system import System, planned

#: Few, so that a handful of runs fills them.
SLOTS = 2
_SHOWN = 10


@pytest.fixture(scope="session")
def shared_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """The system that directed tests share, with a tap on each planner and tool runner; planners have few slots."""
    env = {"RUNWIRE_PLANNER_SLOTS": str(SLOTS), "RUNWIRE_PLANNER_REQUEST_SLOTS": str(SLOTS)}
    with planned(tmp_path_factory.mktemp("system"), tapped=True, env=env) as system:
        yield system


@pytest.fixture
def system(shared_system: System) -> Iterator[System]:
    """The shared system, whole again after the test; when that fails, what the processes logged is shown."""
    with for_one_test(shared_system):
        yield shared_system
        for seen in shared_system.model.ledger[-_SHOWN:]:
            sys.stdout.write(
                f"model asked by {seen.headers['authorization']}: turn {seen.turns}, sent {seen.sent}, {seen.ended}\n"
            )
    assert shared_system.nats.violations() == []


@pytest.fixture
async def client(system: System, bus: Bus) -> AsyncIterator[Client]:
    """Speaks HTTP with the gateway. Where a test fails, it is shown where the queues stood."""
    assert bus.is_connected
    async with Client(system.stack.url) as client:
        yield client


@pytest.fixture
async def bus(system: System) -> AsyncIterator[Bus]:
    async with evidence.connected(system.nats) as bus:
        yield bus
        sys.stdout.write("\n".join(await evidence.consumers(bus)))


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """A deployment with an artifact store, which all tests of this worker share."""
    with deployed(tmp_path_factory.mktemp("whole")) as found:
        yield found


@pytest.fixture
async def whole(parts: Parts) -> AsyncIterator[Whole]:
    """The same, with a client and a model that has said nothing yet."""
    stack, nats, s3, model = parts
    model.reset()
    async with httpx.AsyncClient(base_url=stack.url, timeout=60) as http:
        found = Whole(stack, nats, s3, model, http)
        await found.has_tools()
        with stack.showing_logs():
            yield found
        assert nats.violations() == []
