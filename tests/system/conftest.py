"""Whole systems for tests: real processes on a nats-server of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nats_server import NatsServer
from tests.support.stack import Stack
from tests.system.ledger import LEDGER
from tests.system.model import PlannedModel

TOOLS = Path(__file__).parent / "tools.py"


@pytest.fixture(scope="module")
def model() -> Iterator[PlannedModel]:
    """A provider that reads its script in the question."""
    with PlannedModel() as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The nats-server under a stack, which a test may kill."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def ledger_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tools enter what they do."""
    return tmp_path_factory.mktemp("ledger") / "ledger"


@pytest.fixture
def _logs(stack: Stack) -> Iterator[None]:
    """Show what the processes logged during a test that fails."""
    with stack.showing_logs():
        yield


def stack_env(model: PlannedModel, ledger_file: Path) -> dict[str, str]:
    """What every process of a stack is told."""
    return {**model.env, LEDGER: str(ledger_file), "RUNWIRE_LOG_LEVEL": "info"}
