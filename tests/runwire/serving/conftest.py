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

from contracts.tools.messages import ToolCall
from contracts.wire.names import new_id
from runwire import Tool
from runwire.serving import serve
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]


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
    """Return what a tool announces, once it does."""

    async def answer() -> dict[str, Any] | None:
        try:
            return dict(json.loads((await client.request(f"$SRV.INFO.{name}", timeout=0.2)).data))
        except (nats.errors.NoRespondersError, TimeoutError):
            return None

    await wait_until(answer, what=f"{name} is announced")
    return await answer() or {}


class Caller:
    """One request and all its replies."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.replies: list[tuple[str, bytes]] = []
        self.ended = asyncio.Event()
        self.inbox = client.new_inbox()

    async def start(self) -> "Caller":
        await self.client.subscribe(self.inbox, cb=self._on_reply)
        return self

    async def _on_reply(self, message: Msg) -> None:
        headers = message.headers or {}
        kind = headers.get("Runwire-Reply", headers.get("Status", ""))
        self.replies.append((kind, message.data))
        if kind in {"result", "failure", "declined", "pause", "503"}:
            self.ended.set()

    async def send(self, name: str, args: dict[str, Any], key: str, **fields: Any) -> None:
        deadline = fields.pop("deadline_at", int(time.time() * 1000) + 20_000)
        call = ToolCall(
            call_id="1-0", run_id="0" * 32, tool=name, args=args, idempotency_key=key, deadline_at=deadline, **fields
        )
        await self.client.publish(f"tool.{name}", call.model_dump_json().encode(), reply=self.inbox)

    async def query(self, subject: str, key: str, round_: int = 0) -> None:
        """Send a request about a call, such as `.status`."""
        question = {"idempotency_key": key, "round": round_}
        await self.client.publish(subject, json.dumps(question).encode(), reply=self.inbox)

    async def end(self) -> tuple[str, Any]:
        """Return the last reply, once it is there, as kind and JSON."""
        await asyncio.wait_for(self.ended.wait(), 10)
        kind, data = self.replies[-1]
        return kind, json.loads(data) if data else None

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.replies]


async def call(client: Client, name: str, args: dict[str, Any], **fields: Any) -> tuple[str, Any]:
    caller = await Caller(client).start()
    await caller.send(name, args, fields.pop("key", None) or new_id(), **fields)
    return await caller.end()


def start_process(file: Path, url: str) -> subprocess.Popen[bytes]:
    """Serve a file in a process of its own."""
    code = f"from runwire.serving import main; main([{str(file)!r}], {url!r})"
    with file.with_suffix(".log").open("wb") as log:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.DEVNULL, stderr=log)
