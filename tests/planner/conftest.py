"""Whole runs for the tests of the planner: one scripted provider per file, a planner per test with its settings."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.artifacts import ImageRef
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from contracts.wire.faults import Fault
from services.messaging.connection import Bus
from tests.support.buses import provisioned
from tests.support.model_server import ModelServer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Handler, Planning, planning, tools_at_work
from tests.support.s3_servers import S3Server
from tests.support.stores import Store, serving

Plan = Callable[..., Awaitable[Planning]]
Put = Callable[..., Awaitable[ImageRef]]
TEXT = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False}


@pytest.fixture(scope="module")
def provider() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    """A planner's connection to a server with all streams."""
    async with provisioned(nats_server.url, "planner") as found:
        yield found


@pytest.fixture
async def client(own_nats_server: NatsServer, provider: ModelServer) -> AsyncIterator[Planning]:
    """A client on a server of its own, for tests that start and kill planners themselves."""
    provider.reset()
    async with provisioned(own_nats_server.url, "client") as bus:
        yield Planning(bus, None, None, None)  # type: ignore[arg-type]


@pytest.fixture
async def plan(nats_server: NatsServer, provider: ModelServer, tmp_path: Path) -> AsyncIterator[Plan]:
    """Starts a planner with settings, agents and tools; without tools of the test's own there are `look` and `fail`."""
    provider.reset()
    async with provisioned(nats_server.url, "provisioner") as bus:
        for queue in (subjects.REQUESTS, subjects.INBOX, subjects.CALLS):
            await bus.api(f"STREAM.PURGE.{queue}", {})  # Else runs that an earlier test left open go on here.
    async with contextlib.AsyncExitStack() as stack:

        async def start(tools: dict[str, tuple[ToolSpec, Handler]] | None = None, **settings: Any) -> Planning:
            started = await stack.enter_async_context(planning(nats_server.url, provider, folder=tmp_path, **settings))
            await stack.enter_async_context(tools_at_work(started, nats_server.url, TOOLS if tools is None else tools))
            return started

        yield start


@pytest.fixture
async def store(rclone: S3Server, nats_server: NatsServer) -> AsyncIterator[Store]:
    async with provisioned(nats_server.url, "provisioner"):
        pass
    async with serving(rclone, nats_server.url) as found:
        found.tenant = "default"
        yield found


@pytest.fixture
def put(store: Store) -> Put:
    """Keeps an image as the gateway does."""

    async def keep(body: bytes, session: str | None = None, **more: Any) -> ImageRef:
        ref = await store.client.put("default", body, namespace="input_image", session=session)
        return ImageRef(artifact_id=ref.artifact_id, mime_type="image/png", **more)

    return keep


async def look(args: dict[str, Any]) -> Any:
    """Find what was asked for."""
    return {"text": f"found {args['q']}"}


async def fail(_: dict[str, Any]) -> Any:
    """Fail."""
    return Fault(code="tool_error", reason="out of order")


TOOLS: dict[str, tuple[ToolSpec, Handler]] = {
    "look": (
        ToolSpec(
            name="look", description="Look something up.", input_schema=TEXT, side_effects="read", idempotent=True
        ),
        look,
    ),
    "fail": (ToolSpec(name="fail", description="Always fails."), fail),
}
