"""Tools that announce themselves with a library for micro services."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable

import nats.micro
import pytest
from nats.aio.client import Client
from nats.micro.request import Request
from nats.micro.service import Service

from contracts.tools.messages import ToolSpec

Announce = Callable[..., Awaitable[Service]]


@pytest.fixture
async def announce(client: Client) -> AsyncIterator[Announce]:
    """Serves tools until the test ends; each answers with its version and arguments."""
    services: list[Service] = []

    async def start(spec: ToolSpec, version: str = "1.0.0") -> Service:
        async def on_call(request: Request) -> None:
            await request.respond(json.dumps({"version": version, "args": json.loads(request.data)["args"]}).encode())

        service = await nats.micro.add_service(client, name=spec.name, version=version)
        await service.add_endpoint(
            name=spec.name,
            subject=f"tool.{spec.name}",
            queue_group=spec.name,
            handler=on_call,
            metadata={"runwire.spec": spec.model_dump_json()},
        )
        services.append(service)
        return service

    yield start
    for service in services:
        await service.stop()
