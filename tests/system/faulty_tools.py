"""Tools that violate the protocol, on plain NATS without the SDK: `python -m tests.system.faulty_tools name…`.

Each enters its executions into the ledger, like well-behaved tools, and announces itself as a micro service.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable

import nats
import nats.micro
from nats.aio.client import Client
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, ServiceConfig

from contracts.tools.messages import REPLY_HEADER, SPEC_METADATA, ToolCall, ToolSpec
from tests.system.executions import enter

SILENCE_S = 1.0
LARGE = 7 << 20
_NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


async def silent(_request: Request) -> None:
    """Never answer."""


async def twice(request: Request) -> None:
    """Answer twice, differently."""
    await request.respond(b'{"number": 1}')
    await request.respond(b'{"number": 2}')


async def garbage(request: Request) -> None:
    """Answer with what is no JSON."""
    await request.respond(b"\xff\x00{not json")


async def wrong(request: Request) -> None:
    """Answer with what the output schema forbids."""
    await request.respond(b'{"number": "one"}')


async def large(request: Request) -> None:
    """Answer with more than this deployment takes."""
    await request.respond(json.dumps({"number": 1, "text": "x" * LARGE}).encode())


async def wordy(request: Request) -> None:
    """Say that it failed, with a code that nobody knows and more words than anybody reads."""
    body = json.dumps({"reason": "no. " * 100_000, "code": "made_up"}).encode()
    await request.respond(body, {REPLY_HEADER: "failure"})


async def dies(_request: Request) -> None:
    """End the process in the middle of the call."""
    os._exit(9)


Behaviour = Callable[[Request], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {each.__name__: each for each in (silent, twice, garbage, wrong, large, wordy, dies)}


def spec(name: str) -> ToolSpec:
    """What a tool says about itself."""
    return ToolSpec(
        name=name,
        description=f"A tool that is {name}.",
        output_schema=_NUMBER,
        timeout_s=SILENCE_S,
        side_effects="write",
    )


async def serve(client: Client, name: str) -> None:
    """Take calls, one at a time, and announce the tool."""

    async def on_call(request: Request) -> None:
        enter(ToolCall.model_validate_json(request.data).idempotency_key)
        await BEHAVIOURS[name](request)

    service = await nats.micro.add_service(client, ServiceConfig(name=name, version="1.0.0"))
    metadata = {SPEC_METADATA: spec(name).model_dump_json()}
    await service.add_endpoint(
        EndpointConfig(name=name, subject=f"tool.{name}", queue_group=name, handler=on_call, metadata=metadata),
    )


async def main(names: list[str]) -> None:
    """Serve until killed."""
    client = await nats.connect(
        os.environ["RUNWIRE_NATS_URL"],
        user=os.environ.get("RUNWIRE_NATS_USER"),
        password=os.environ.get("RUNWIRE_NATS_PASSWORD"),
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.1,
    )
    for name in names:
        await serve(client, name)
    sys.stdout.write(f"serving {', '.join(names)}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
