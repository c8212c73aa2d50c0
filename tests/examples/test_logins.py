"""The examples connect to a server that wants a login, as `runwire env` gives it to a shell."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from tests.examples.asking import discover
from tests.examples.conftest import EXAMPLES, Start, program, served
from tests.examples.test_readme import BLOCKS
from tests.support.nats_server import NatsServer, admits

# The limit covers the build, which counts for the first test.
pytestmark = pytest.mark.timeout(300)

LOGIN = {"RUNWIRE_NATS_USER": "runwire", "RUNWIRE_NATS_PASSWORD": "0123abcd"}


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that lets one user in."""
    server = NatsServer(tmp_path / "nats", extra='authorization { user: "runwire", password: "0123abcd" }')
    server.start()
    assert not admits(server.port)
    yield server
    server.kill()


@pytest.fixture
async def asker(closed: NatsServer) -> AsyncIterator[Client]:
    """A connection of the one who asks."""
    async with await nats.connect(closed.url, user="runwire", password="0123abcd", allow_reconnect=False) as connected:
        yield connected


@pytest.mark.parametrize("name", ["readme", "plain", "sdk", "typescript", "go"])
async def test_it_is_found_on_a_server_that_wants_a_login(
    name: str, closed: NatsServer, asker: Client, start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """From the three variables and nothing else."""
    (tmp_path / "tool.py").write_text(BLOCKS[0])
    tools: dict[str, tuple[str, Callable[[], list[str]]]] = {
        "readme": ("weekday", lambda: [sys.executable, str(tmp_path / "tool.py")]),
        "plain": ("weekday", lambda: [sys.executable, str(EXAMPLES / "python" / "plain_nats_tool.py")]),
        "sdk": ("calculate", lambda: served("calculator.py")),
        "typescript": ("plan_route", lambda: program(request.getfixturevalue("typescript"), "plan_route")),
        "go": ("simulate_queue", lambda: program(request.getfixturevalue("go"), "simulate_queue")),
    }
    tool, command = tools[name]
    await start(command(), closed, **LOGIN)
    assert (await discover(asker, tool)).name == tool


@pytest.mark.parametrize("name", ["typescript", "go"])
async def test_a_refused_login_ends_the_tool_and_names_the_remedy(
    name: str, closed: NatsServer, start: Start, request: pytest.FixtureRequest
) -> None:
    """Who forgot `runwire env` reads what to set, instead of waiting for a tool that never comes."""
    tool = {"typescript": "plan_route", "go": "simulate_queue"}[name]
    running = await start(program(request.getfixturevalue(name), tool), closed, **dict.fromkeys(LOGIN, ""))
    assert await running.ended() != 0
    assert "RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD" in "\n".join(running.complaints)
