"""The examples in other languages, built once per run; and processes of them."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from runwire.credentials import Credential
from runwire.identities import Identities, write_private
from services.messaging.connection import Bus
from services.runtime.settings import BusSettings
from tests.support.builds import build, built_once, built_typescript
from tests.support.nats_server import NatsServer
from tests.support.needs import needs_program

EXAMPLES = Path(__file__).parents[2] / "examples"


class Running:
    """A process of ours, and the lines that it has printed and complained so far."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.complaints: list[str] = []
        self._reading = [
            asyncio.create_task(_read(process.stdout, self.lines)),
            asyncio.create_task(_read(process.stderr, self.complaints)),
        ]

    async def ended(self, within: float = 30) -> int:
        """Wait for the end; the exit status."""
        async with asyncio.timeout(within):
            status = await self.process.wait()
            await asyncio.gather(*self._reading)
        return status

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.ended()


async def _read(stream: asyncio.StreamReader | None, into: list[str]) -> None:
    assert stream is not None
    while line := await stream.readline():
        into.append(line.decode().rstrip("\n"))


Start = Callable[..., Awaitable[Running]]


@pytest.fixture(scope="session")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How the TypeScript example's programs are started; the last part is their folder."""
    folder = built_typescript(tmp_path_factory)
    return [str(needs_program("node")), str(folder / "examples" / "typescript" / "dist")]


@pytest.fixture(scope="session")
def go(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How the Go example's programs are started: their folder."""
    command = needs_program("go")
    with built_once(tmp_path_factory, "go") as (folder, to_do):
        if to_do:
            build([str(command), "build", "-o", f"{folder}/", "./cmd/..."], EXAMPLES / "go")
    return [str(folder)]


def program(started_by: list[str], name: str) -> list[str]:
    *interpreter, folder = started_by
    return [*interpreter, f"{folder}/{name}.js" if interpreter else f"{folder}/{name}"]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a program against a server; all are ended with the test."""
    started: list[Running] = []

    async def run(command: list[str], server: NatsServer, **environment: str) -> Running:
        root = str(EXAMPLES.parent)
        env = {**os.environ, "RUNWIRE_NATS_URL": server.url, "PYTHONPATH": root, **environment}
        process = await asyncio.create_subprocess_exec(
            *command, env=env, cwd=root, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE
        )
        started.append(Running(process))
        return started[-1]

    yield run
    for running in started:
        await running.kill()


@pytest.fixture
def users_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server with the accounts and users of a deployment, for this test alone."""
    with NatsServer(tmp_path_factory.mktemp("nats"), identities=True) as server:
        yield server


async def new_credential(server: NatsServer, add: Callable[[Identities], str]) -> dict[str, str]:
    """Add a user while the server runs; the environment of a program with its credential file."""
    users: list[str] = []
    await asyncio.to_thread(server.add_users, lambda known: users.append(add(known)))
    file = server.store.parent / f"{users[0]}.json"
    write_private(file, Credential(server.url, **server.login(users[0])).as_json())
    return {"RUNWIRE_NATS_CREDENTIALS": str(file)}


async def bus_of(server: NatsServer, user: str) -> Bus:
    """A connection of a service; it is left by whoever asked for it."""
    settings = BusSettings(nats_url=server.url, nats_user=user, nats_password=server.login(user)["password"])
    return await Bus(user, settings).connect()


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    async with await nats.connect(nats_server.url, allow_reconnect=False) as connected:
        yield connected


def served(*files: str) -> list[str]:
    """The command that serves Python examples, as `runwire serve` does."""
    paths = [str(EXAMPLES / "demo" / file) for file in files]
    return [sys.executable, "-c", f"from runwire.serving import main; main({paths!r})"]


def tool_in(language: str, request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    """Name and command of the tool in one language."""
    match language:
        case "sdk":
            return "calculate", served("calculator.py")
        case "plain":
            return "weekday", [sys.executable, str(EXAMPLES / "python" / "plain_nats_tool.py")]
        case "typescript":
            return "plan_route", program(request.getfixturevalue("typescript"), "plan_route")
        case _:
            return "simulate_queue", program(request.getfixturevalue("go"), "simulate_queue")
