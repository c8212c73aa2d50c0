"""The examples connect to a server that wants a login, as `runwire env` gives it to a shell."""

import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from runwire.credentials import Credential
from runwire.identities import write_private
from tests.examples.conftest import Start, tool_in
from tests.examples.test_readme import BLOCKS
from tests.runwire.serving.conftest import discover
from tests.support.certificates import make_certificates, tls_of_server
from tests.support.nats_server import NatsServer, admits
from tests.support.waiting import wait_until

# The limit covers the build, which counts for the first test.
pytestmark = pytest.mark.timeout(300)

USERS = 'authorization { user: "runwire", password: "0123abcd" }'
LOGIN = {"RUNWIRE_NATS_USER": "runwire", "RUNWIRE_NATS_PASSWORD": "0123abcd"}


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that lets one user in."""
    with NatsServer(tmp_path / "nats", extra=USERS) as server:
        assert not admits(server.port)
        yield server


@pytest.fixture
async def asker(closed: NatsServer) -> AsyncIterator[Client]:
    async with await nats.connect(closed.url, user="runwire", password="0123abcd", allow_reconnect=False) as connected:
        yield connected


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["readme", "plain", "sdk", "typescript", "go"])
async def test_it_is_found_on_a_server_that_wants_a_login(
    name: str, closed: NatsServer, asker: Client, start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """From the three variables and nothing else."""
    (tmp_path / "tool.py").write_text(BLOCKS[0])
    readme = ("weekday", [sys.executable, str(tmp_path / "tool.py")])
    tool, command = readme if name == "readme" else tool_in(name, request)
    await start(command, closed, **LOGIN)
    assert (await discover(asker, tool)).name == tool


@pytest.mark.parametrize("name", ["typescript", "go"])
async def test_a_refused_login_ends_the_tool_and_names_the_remedy(
    name: str, closed: NatsServer, start: Start, request: pytest.FixtureRequest
) -> None:
    """Who forgot `runwire env` reads what to set, instead of waiting for a tool that never comes."""
    running = await start(tool_in(name, request)[1], closed, **dict.fromkeys(LOGIN, ""))
    assert await running.ended() != 0
    assert "RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD" in "\n".join(running.complaints)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["plain", "sdk", "typescript", "go"])
async def test_a_certificate_of_an_unknown_authority_is_refused(
    name: str, start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With the authority in the credential file, by a path beside it, the tool is found; without it a line says why."""
    certificates = make_certificates(tmp_path / "certificates")
    with NatsServer(tmp_path / "nats", extra=f"{USERS}\n{tls_of_server(certificates)}") as server:
        tool, command = tool_in(name, request)
        write_private(tmp_path / "no_ca.json", Credential(server.url, "runwire", "0123abcd").as_json())
        write_private(
            tmp_path / "with_ca.json", Credential(server.url, "runwire", "0123abcd", "certificates/ca.pem").as_json()
        )
        refused = await start(command, server, RUNWIRE_NATS_CREDENTIALS=str(tmp_path / "no_ca.json"))
        await wait_until(lambda: "certificate" in "\n".join(refused.complaints), timeout=30, what="it says why")
        await start(command, server, RUNWIRE_NATS_CREDENTIALS=str(tmp_path / "with_ca.json"))
        trusted = ssl.create_default_context(cafile=certificates / "ca.pem")
        async with await nats.connect(server.url, user="runwire", password="0123abcd", tls=trusted) as asker:
            assert (await discover(asker, tool)).name == tool
