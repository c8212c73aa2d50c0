"""What every test may ask for. Servers are real: they come with the development environment, and each worker of a run has its own."""

from collections.abc import Iterator

import pytest

from tests.support.nats_server import NatsServer


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A running server that all tests of this worker share. Who stops it must start it again; who leaves a stream must remove it."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A running server, empty and for this test alone: it may be killed, and what is left in it goes with it."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()
