"""`runwire credentials` on a server that runs: users come and go without a restart."""

import asyncio
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from runwire.cli.commands.credentials import change
from runwire.credentials import read_credential
from tests.runwire.conftest import Ended, runwire
from tests.support.buses import processed
from tests.support.nats_server import NatsServer, admits
from tests.support.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsServer]:
    """A server of a data folder, which the commands find by the environment."""
    with NatsServer(tmp_path, identities=True) as server:
        monkeypatch.setenv("RUNWIRE_DATA_DIR", str(tmp_path))
        monkeypatch.setenv("RUNWIRE_NATS_URL", server.url)
        monkeypatch.setenv("RUNWIRE_NATS_PUBLIC_URL", server.url)
        yield server


async def called(*arguments: str, data: Path) -> Ended:
    return await asyncio.to_thread(runwire, "credentials", *arguments, data=data)


async def connected(url: str, **options: object) -> Client:
    """Connect with the user and password in an address."""
    return await nats.connect(url, allow_reconnect=False, **options)


async def test_a_credential_works_at_once_and_is_cut_off_at_once(server: NatsServer, tmp_path: Path) -> None:
    """Nobody else is disconnected meanwhile."""
    before = await connected(server.url, **server.login("operator"))
    url = (await called("tool", "weather", "--url", data=tmp_path)).stdout.strip()
    tool = await connected(url)
    await tool.subscribe("tool.weather", "weather")
    await processed(tool)
    assert tool.is_connected

    assert (await called("revoke", "tool_weather", data=tmp_path)).returncode == 0
    await wait_until(lambda: not tool.is_connected, timeout=5, what="the connection is closed")
    assert before.is_connected
    assert not admits(server.port, "tool_weather", url.partition("tool_weather:")[2].partition("@")[0])
    assert (await called("tool", "weather", "--url", data=tmp_path)).stdout.strip() != url
    await before.close()


async def test_a_file_is_what_the_sdk_reads(server: NatsServer, tmp_path: Path) -> None:
    """Readable by its owner alone; on stdout it is the same."""
    file = tmp_path / "weather.json"
    assert (await called("tool", "weather", "--out", str(file), data=tmp_path)).returncode == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (await called("tool", "weather", data=tmp_path)).stdout == file.read_text()
    found = read_credential(file)
    assert (found.url, found.user) == (server.url, "tool_weather")
    assert admits(server.port, found.user, found.password)
    assert (
        await called("listener", "acme", "--server", "tls://nats.example.org:4222", "--out", str(file), data=tmp_path)
    ).returncode == 0
    assert read_credential(file).url == "tls://nats.example.org:4222"


def test_changes_at_the_same_time_all_take_effect(server: NatsServer) -> None:
    """The server refuses logins while it reads its accounts, so one command at a time has it read them."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda name: change(lambda known: known.add_tools(name)), [f"t{n}" for n in range(8)]))
    for known, user in made:
        assert admits(server.port, user, known.passwords[user])


def test_a_deployment_gets_its_logins(server: NatsServer, tmp_path: Path) -> None:
    """One file per user whose folder is there, and nothing for others."""
    for user in ("planner", "gateway", "nobody"):
        (tmp_path / "logins" / user).mkdir(parents=True)
    assert runwire("credentials", "refresh", "--logins", "logins", data=tmp_path).returncode == 0
    assert (tmp_path / "logins" / "planner" / "password").read_text() == server.passwords["planner"]
    assert (tmp_path / "logins" / "gateway" / "password").read_text() == server.passwords["gateway"]
    assert list((tmp_path / "logins" / "nobody").iterdir()) == []
