"""Tools served in this process, and a caller that records every reply."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from contracts.tools.messages import REPLY_HEADER, SPEC_METADATA, ToolCall, ToolSpec
from contracts.wire.names import new_id
from runwire import Tool
from runwire.serving import serve
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
_ENDS = {"result", "failure", "declined", "pause", "503"}


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    async with await nats.connect(nats_server.url) as found:
        yield found


Serve = Callable[..., Awaitable[None]]


@pytest.fixture
async def serving(nats_server: NatsServer, client: Client) -> AsyncIterator[Serve]:
    """Serves tools in this process until the test ends; returns once they are discovered."""
    stop = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def start(*tools: Tool[..., Any]) -> None:
        tasks.append(asyncio.create_task(serve(tools, nats_server.url, stop=stop, grace_s=0.1)))
        for one in tools:
            await seen(client, one.name)

    yield start
    stop.set()
    await asyncio.gather(*tasks)


async def seen(client: Client, name: str) -> dict[str, Any]:
    """Return what a tool announces, once it does: a micro service is there a moment before its endpoint."""

    async def answer() -> dict[str, Any] | None:
        try:
            found = dict(json.loads((await client.request(f"$SRV.INFO.{name}", timeout=0.2)).data))
        except (NatsError, TimeoutError):
            return None
        return found if any(SPEC_METADATA in (each.get("metadata") or {}) for each in found["endpoints"]) else None

    return await wait_until(answer, what=f"{name} is announced") or {}


async def discover(client: Client, name: str) -> ToolSpec:
    """Return what a tool says of itself, once it is there."""
    described = [each for each in (await seen(client, name))["endpoints"] if SPEC_METADATA in (each["metadata"] or {})]
    (endpoint,) = described
    assert (endpoint["subject"], endpoint["queue_group"]) == (f"tool.{name}", name)
    return ToolSpec.model_validate_json(endpoint["metadata"][SPEC_METADATA])


class Caller:
    """One request and all its replies, as kind and body."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.replies: list[tuple[str, bytes]] = []
        self.inbox = client.new_inbox()

    async def start(self) -> "Caller":
        await self.client.subscribe(self.inbox, cb=self._on_reply)
        return self

    async def _on_reply(self, message: Msg) -> None:
        headers = message.headers or {}
        self.replies.append((headers.get(REPLY_HEADER) or headers.get("Status") or "result", message.data))

    async def send(self, name: str, args: dict[str, Any], key: str, **fields: Any) -> None:
        deadline = fields.pop("deadline_at", int(time.time() * 1000) + 60_000)
        call = ToolCall(
            call_id="1-0", run_id="0" * 32, tool=name, args=args, idempotency_key=key, deadline_at=deadline, **fields
        )
        await self.client.publish(f"tool.{name}", call.model_dump_json().encode(), reply=self.inbox)

    async def query(self, subject: str, key: str, round_: int = 0) -> None:
        """Send a request about a call, such as `.status`."""
        question = {"idempotency_key": key, "round": round_}
        await self.client.publish(subject, json.dumps(question).encode(), reply=self.inbox)

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.replies]

    def of(self, kind: str) -> list[Any]:
        return [json.loads(body) for found, body in self.replies if found == kind]

    async def first(self, kind: str) -> Any:
        """Return the first reply of a kind, once it is there."""
        return (await wait_until(lambda: self.of(kind), what=f"a {kind} came"))[0]

    async def end(self) -> tuple[str, Any]:
        """Return the one reply that ends the call, once it is there, as kind and JSON; a result with all its parts."""
        await wait_until(lambda: not _ENDS.isdisjoint(self.kinds()), what="the call ended")
        ((kind, body),) = [reply for reply in self.replies if reply[0] in _ENDS]
        whole = b"".join(part for found, part in self.replies if found == "part") or body
        return kind, json.loads(whole) if whole else None


async def asking(client: Client, name: str, args: dict[str, Any], key: str = "", **fields: Any) -> Caller:
    """Send a call under this key, or a new one."""
    caller = await Caller(client).start()
    await caller.send(name, args, key or new_id(), **fields)
    return caller


async def call(client: Client, name: str, args: dict[str, Any], **fields: Any) -> tuple[str, Any]:
    return await (await asking(client, name, args, **fields)).end()


def start_process(file: Path, url: str) -> subprocess.Popen[bytes]:
    """Serve a file in a process of its own."""
    code = f"from runwire.serving import main; main([{str(file)!r}], {url!r})"
    with file.with_suffix(".log").open("wb") as log:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.DEVNULL, stderr=log)
