"""One small system for the whole tutorial: a planner, a tool runner, a gateway, three tools, and the rule-based stand-in for a model."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from runwire import Client
from tests.support.nats_server import NatsServer
from tests.support.stack import Stack

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
TOOLS = Path(__file__).parent / "tutorial_tools.py"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything running, as `runwire up` starts it."""
    folder = tmp_path_factory.mktemp("tutorial")
    server = NatsServer(folder / "nats")
    server.start()
    env = {"RUNWIRE_MODEL": "builtin/rehearsal", "TUTORIAL_FOLDER": str(folder)}
    system = Stack(server.url, folder, env=env, planners=1, tool_runners=1, tools=TOOLS, tool_copies=1)
    system.add_tools("calculator-1", EXAMPLES / "calculator.py")
    system.add_tools("table-1", EXAMPLES / "table.py")
    with system:
        yield system
    server.stop()


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    """Speaks to the gateway."""
    with stack.showing_logs():
        async with Client(stack.url) as client:
            yield client
        stack.mend()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tutorial on one worker: its tests share one system."""
    for item in items:
        if "fundamentals" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("fundamentals"))
