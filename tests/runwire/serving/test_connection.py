"""Serving tools under a credential: the right one, a wrong one, one that is revoked, and TLS."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from runwire import Tool, tool
from runwire.credentials import Credential
from runwire.errors import ToolsNotAllowed
from runwire.identities import write_private
from runwire.serving import serve
from runwire.serving import server as serving_server
from tests.support.certificates import make_certificates, tls_of_server
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port
from tests.support.waiting import wait_until

from .conftest import call, seen

ROOT = Path(__file__).resolve().parents[3]
PASSWORD = "canary-2f9a"
ANYBODY = '{ user: "caller", password: "c" }'
TOOL_X = f"""{{ user: "tool_x", password: "{PASSWORD}", permissions: {{
    publish: ["_INBOX.>"]
    subscribe: ["tool.x x", "tool.x.*", "$SRV.*", "$SRV.*.x", "$SRV.*.x.*"]
}} }}"""


def users(*wanted: str) -> str:
    """Lines of a configuration that let these users in."""
    return f"authorization {{ users: [ {', '.join([ANYBODY, *wanted])} ] }}"


@tool(desc="Allowed")
async def x() -> int:
    """Return a number."""
    return 7


@tool(desc="Not allowed")
async def y() -> int:
    """Return a number."""
    return 8


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server where `tool_x` may serve the tool `x`."""
    with NatsServer(tmp_path / "nats", extra=users(TOOL_X)) as server:
        yield server


@pytest.fixture
def credential(server: NatsServer, tmp_path: Path) -> Path:
    file = tmp_path / "tool_x.json"
    write_private(file, Credential(server.url, "tool_x", PASSWORD).as_json())
    return file


Serving = Callable[..., Awaitable[asyncio.Task[None]]]


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    stop = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def start(*tools: Tool[..., Any], **options: Any) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(serve(tools, stop=stop, grace_s=0.1, **options)))
        return tasks[-1]

    yield start
    stop.set()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(serving_server, "_HEALTH_FILE_INTERVAL_S", 0.1)
    with caplog.at_level(logging.INFO, "runwire.serving"):
        yield
    assert PASSWORD not in caplog.text


async def served(server: NatsServer, name: str) -> Any:
    """Call a tool once it is there."""
    async with await nats.connect(server.url, user="caller", password="c") as client:
        await seen(client, name)
        return await call(client, name, {})


async def test_a_tool_needs_no_more_than_its_own_subjects(
    server: NatsServer, credential: Path, serving: Serving, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It is discovered and called, nothing is denied, and the health file appears."""
    health = tmp_path / "healthy"
    await serving(x, credentials=credential, health_file=health)

    assert await served(server, "x") == ("result", 7)
    await wait_until(health.exists, what="the process is healthy")
    assert [record.message for record in caplog.records] == ["serving x"]


async def test_a_tool_that_the_credential_lacks_ends_the_process(
    credential: Path, serving: Serving, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """With a sentence that says how to get the right one, and which `runwire serve` prints."""
    task = await serving(y, credentials=credential, health_file=tmp_path / "healthy")

    with pytest.raises(ToolsNotAllowed) as refused:
        await asyncio.wait_for(task, 10)
    assert "does not allow the tool y: `runwire credentials tool y` gives" in str(refused.value)
    assert not caplog.records
    assert not (tmp_path / "healthy").exists()


async def test_the_tools_that_the_credential_has_are_served(
    server: NatsServer, credential: Path, serving: Serving, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The process is not healthy, and one line names the tool that is missing."""
    health = tmp_path / "healthy"
    await serving(x, y, credentials=credential, health_file=health)

    assert await served(server, "x") == ("result", 7)
    denied, began = (record.message for record in caplog.records)
    assert "user 'tool_x' does not allow the tool y" in denied
    assert began == "serving x"
    assert not health.exists()


async def test_a_credential_may_be_added_revoked_and_replaced(
    server: NatsServer, credential: Path, serving: Serving, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Without a restart. While it is refused the process is not healthy, and one line says what to do."""
    health = tmp_path / "healthy"
    server.reload(users())
    await serving(x, credentials=credential, health_file=health)
    await wait_until(lambda: "refuses the user 'tool_x'" in caplog.text, what="the refusal is logged")
    assert f"`runwire credentials tool NAME --out {credential}` writes one" in caplog.text
    server.reload(users(TOOL_X))
    assert await served(server, "x") == ("result", 7)
    await wait_until(health.exists, what="the process is healthy")

    server.reload(users())
    await wait_until(lambda: not health.exists(), what="the process is not healthy")
    server.reload(users(TOOL_X.replace(PASSWORD, "another")))
    write_private(credential, Credential(server.url, "tool_x", "another").as_json())
    assert await served(server, "x") == ("result", 7)
    await wait_until(health.exists, what="the process is healthy again")
    assert caplog.text.count("refuses the user") == 1


async def test_a_missing_server_is_logged_with_its_address(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """And tried again until it answers, or serving is stopped."""
    port = free_port()
    await serving(x, url=f"nats://user:{PASSWORD}@127.0.0.1:{port}")
    await wait_until(lambda: f"NATS at 127.0.0.1:{port}: " in caplog.text, what="it says what it waits for")
    assert "tried again until it answers" in caplog.text


async def test_rights_that_shrink_end_the_process(server: NatsServer, credential: Path, serving: Serving) -> None:
    """NATS takes the subscription away and says so."""
    task = await serving(x, credentials=credential)
    assert await served(server, "x") == ("result", 7)
    server.reload(users(TOOL_X.replace('"tool.x x"', '"tool.z z"')))

    with pytest.raises(ToolsNotAllowed, match="does not allow the tool x"):
        await asyncio.wait_for(task, 10)


async def test_a_denied_reply_is_logged(
    server: NatsServer, credential: Path, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, by the part of its subject that is the same for all calls."""
    await serving(x, credentials=credential)
    async with await nats.connect(server.url, user="caller", password="c") as client:
        await seen(client, "x")
        for key in ("1", "2"):
            await client.publish("tool.x", b"{}", reply=f"elsewhere.{key}")
        await wait_until(lambda: "does not allow elsewhere.*" in caplog.text, what="the denial is logged")
        await seen(client, "x")
    assert caplog.text.count("elsewhere") == 1


async def test_the_command_takes_a_credential(server: NatsServer, credential: Path, tmp_path: Path) -> None:
    """And a health file; one that is malformed ends it with a sentence."""
    (tmp_path / "my_tools.py").write_text(
        "from runwire import tool\n\n@tool(name='x', desc='Nine')\ndef x() -> int:\n    return 9\n"
    )
    command = [sys.executable, "-P", "-m", "runwire", "serve", str(tmp_path / "my_tools.py")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = ["--credentials", str(credential), "--health-file", str(tmp_path / "healthy")]
    process = await asyncio.create_subprocess_exec(*command, *options, env=env)
    try:
        assert await served(server, "x") == ("result", 9)
        await wait_until((tmp_path / "healthy").exists, what="the process is healthy")
    finally:
        process.terminate()
    assert await process.wait() == 0
    assert not (tmp_path / "healthy").exists()

    write_private(credential, "{")
    ended = await asyncio.create_subprocess_exec(*command, *options, env=env, stderr=asyncio.subprocess.PIPE)
    said = (await ended.communicate())[1].decode()
    assert ended.returncode == 1
    assert said.count("\n") == 1
    assert "tool_x.json is not JSON" in said


async def test_tls_is_not_dropped(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """A server that offers none gets neither a login nor anything else."""
    received: list[bytes] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"auth_required":true}\r\n')
        received.append(await reader.read(1000))
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1") as plain:
        port = plain.sockets[0].getsockname()[1]
        await serving(x, url=f"tls://tool_x:{PASSWORD}@127.0.0.1:{port}")
        await wait_until(lambda: "offers no TLS" in caplog.text, what="the missing TLS is logged")
        await wait_until(lambda: received, what="the connection was closed")
    assert not any(received)


async def test_a_certificate_is_checked(tmp_path: Path, serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """By the authority in the credential file; without it one line says what is missing."""
    certificates, file = make_certificates(tmp_path / "certificates"), tmp_path / "tool_x.json"
    with NatsServer(tmp_path / "nats", extra=f"{users(TOOL_X)}\n{tls_of_server(certificates)}") as server:
        write_private(file, Credential(server.url, "tool_x", PASSWORD).as_json())
        await serving(x, credentials=file)
        await wait_until(lambda: "certificate is not accepted" in caplog.text, what="the refusal is logged")
        assert "set RUNWIRE_NATS_CA" in caplog.text
        assert "serving" not in [record.message.partition(" ")[0] for record in caplog.records]

        write_private(file, Credential(server.url, "tool_x", PASSWORD, str(certificates / "ca.pem")).as_json())
        await serving(x, credentials=file)
        await wait_until(lambda: "serving x" in caplog.text, what="the tool is served")
    assert caplog.text.count("certificate is not accepted") == 1
