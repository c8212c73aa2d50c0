"""A server with the accounts of a deployment: its services, three credentials of tools, two of listeners."""

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from services.messaging.streams import provision
from services.runtime.settings import BusSettings
from tests.identities.scene import Scene
from tests.identities.users import add_tools_and_listeners
from tests.support.buses import connected
from tests.support.nats_server import NatsServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """It has no streams: what the server allows is all that counts."""
    with NatsServer(tmp_path_factory.mktemp("identities"), identities=add_tools_and_listeners) as found:
        yield found


@pytest.fixture(scope="session")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The same with all streams."""
    with NatsServer(tmp_path_factory.mktemp("guarded"), identities=add_tools_and_listeners) as found:
        yield found


@pytest.fixture(scope="session")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server without users, as every deployment was: attacks succeed there."""
    with NatsServer(tmp_path_factory.mktemp("open")) as found:
        yield found


@contextlib.asynccontextmanager
async def _scene(server: NatsServer) -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as stack:
        settings = BusSettings(**server.settings("operator"))
        operator = await stack.enter_async_context(connected(server.url, "operator", settings))
        await provision(operator)
        yield Scene(server, operator, stack)


@pytest.fixture
async def clean(own_identified_server: NatsServer) -> AsyncIterator[Scene]:
    """A server of its own, on which nobody may be denied anything."""
    async with _scene(own_identified_server) as scene:
        yield scene


@pytest.fixture
async def guarded(guarded_server: NatsServer) -> AsyncIterator[Scene]:
    """Where attacks fail."""
    async with _scene(guarded_server) as scene:
        yield scene


@pytest.fixture
async def unguarded(open_server: NatsServer) -> AsyncIterator[Scene]:
    """Where attacks succeed, so that they are known to be able to."""
    async with _scene(open_server) as scene:
        yield scene
