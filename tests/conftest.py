"""What every test may ask for.

Servers are real: they come with the development environment, and each worker of a run has its own.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.nats_server import NatsServer
from tests.unit_tests import FEW_EXAMPLES, Guard, is_unit, try_few_examples

# Other work shares the cores: a slow example says nothing about the code.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("shared-machine"), max_examples=FEW_EXAMPLES)
settings.load_profile("shared-machine")


def pytest_configure(config: pytest.Config) -> None:
    """Of `make unit`, which is run after every change, properties try few examples; of everything else, all."""
    if config.option.markexpr == "unit":
        settings.load_profile("quick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need no server, before pytest selects by marker."""
    for item in items:
        if is_unit(item):
            item.add_marker("unit")
        if config.option.markexpr == "unit":
            try_few_examples(item)


@pytest.fixture(scope="session")
def _guard() -> Guard:
    return Guard()


@pytest.fixture(autouse=True)
def _no_server(request: pytest.FixtureRequest) -> Iterator[None]:
    """Under `-m unit`: fail what starts a process."""
    if request.config.option.markexpr != "unit":
        yield
        return
    guard: Guard = request.getfixturevalue("_guard")
    guard.on = True
    yield
    guard.on = False


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
    """A running server that all tests of this worker share. Nobody kills it, so it need not write to the disk at once.

    Who stops it must start it again; who leaves a stream must remove it.
    """
    server = NatsServer(tmp_path_factory.mktemp("nats"), sync="1s")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_identified_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The next one with the users of a deployment. Fails a test in which a user was denied anything."""
    server = NatsServer(tmp_path_factory.mktemp("nats"), identities=True)
    server.start()
    yield server
    server.kill()
    assert server.violations() == []


@pytest.fixture
def own_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A running server, empty and for this test alone: it may be killed, and what is left in it goes with it."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()
