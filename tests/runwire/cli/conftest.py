"""A server with the users of a deployment, its tool runner and tools, and an operator who calls commands there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import nats.micro
import pytest

from contracts.tools.messages import SPEC_METADATA, ToolSpec
from contracts.wire import keys
from contracts.wire.rights import OPERATOR
from contracts.wire.subject import TOOL_RUNNER
from services.messaging.connection import Bus
from services.runtime.settings import BusSettings
from services.tool_runner.app import running
from services.tool_runner.settings import ToolRunnerSettings
from tests.runwire.conftest import runwire
from tests.support.buses import connected, processed, provisioned
from tests.support.nats_server import NatsServer

Operates = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the server."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def server(data: Path, request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    """A server on which each of the module's TOOLS has a credential."""
    with NatsServer(data, identities=lambda known: [*map(known.add_tools, request.module.TOOLS)]) as found:
        yield found


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    """The operator's connection, where all streams are and nothing is in the catalogue."""
    async with provisioned(server.url, OPERATOR, BusSettings(**server.settings(OPERATOR))) as bus:
        async with await nats.connect(server.url, **server.login(OPERATOR)) as client:
            await client.jetstream().purge_stream(f"KV_{keys.CATALOGUE_BUCKET}")
        yield bus


@pytest.fixture
def tools(server: NatsServer, data: Path) -> Operates:
    """Call `runwire tools …` as the operator of the server; the exit code, and what is printed."""

    async def called(*arguments: str, **env: str) -> tuple[int, str]:
        env = {"RUNWIRE_DATA_DIR": str(data), "RUNWIRE_NATS_URL": server.url} | env
        ended = await asyncio.to_thread(runwire, "tools", *arguments, data=data, **env)
        return ended.returncode, ended.stdout + ended.stderr

    return called


@contextlib.asynccontextmanager
async def tool_runner(server: NatsServer, **settings: Any) -> AsyncIterator[None]:
    """A tool runner that works, within its rights."""
    own = ToolRunnerSettings(**server.settings(TOOL_RUNNER), discover_s=0.3, graceful_timeout_s=0.1, **settings)
    async with connected(server.url, TOOL_RUNNER, own) as bus:
        async with running(bus, own, []):
            yield
        assert bus.denied is None


@contextlib.asynccontextmanager
async def service(
    server: NatsServer,
    name: str,
    spec: ToolSpec | None,
    version: str = "1.0.0",
    *,
    endpoint: str = "weather",
    user: str = "tool_weather",
) -> AsyncIterator[None]:
    """A micro service with one endpoint, whatever its names are; it never answers, nor hears what is denied to it."""

    async def ignore(_: object) -> None: ...

    async with await nats.connect(server.url, error_cb=ignore, **server.login(user)) as client:
        added = await nats.micro.add_service(client, name=name, version=version)
        metadata = {SPEC_METADATA: spec.model_dump_json()} if spec else {}
        subject = f"tool.{endpoint}"
        await added.add_endpoint(name="a", subject=subject, queue_group=endpoint, handler=ignore, metadata=metadata)
        await processed(client)
        yield
