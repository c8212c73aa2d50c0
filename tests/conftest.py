"""What every test may ask for. Servers are real: they come with the development environment, and each worker of a run has its own."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.nats_server import NatsServer

# Other work shares the cores: a slow example says nothing about the code.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """Hide the developer's own settings and keys: with them, a test could ask a real model, and pay for it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("RUNWIRE_") or name.endswith("_API_KEY"):
                patch.delenv(name)
        yield


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
