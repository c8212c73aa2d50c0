"""Tools of servers that the official SDK serves, over standard input and output and over HTTP: each kind of answer."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contracts.runs.events import ToolProgress
from contracts.wire.names import new_id
from services.tool_runner.transports.mcp.config import McpServer
from tests.support.needs import free_port
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Start, fault_of

SERVER = Path(__file__).parent / "official_server.py"


class Official:
    """The server beside a tool runner; its tools are named with `prefix`."""

    def __init__(self, planner: Planner, ledger: Path) -> None:
        self.planner, self.ledger = planner, ledger
        self.prefix = f"t{new_id()[-6:]}_"

    def server(self, **fields: Any) -> McpServer:
        """What the file says of it: a command, unless the fields name an address."""
        command = {} if "url" in fields else {"command": sys.executable, "args": [str(SERVER)]}
        env = {"LEDGER": str(self.ledger), "NAMED": "yes"}
        return McpServer.model_validate(
            {"name": "official", "prefix": self.prefix, "approval": "never", "env": env, **command, **fields}
        )

    async def call(self, tool: str, **args: Any) -> Any:
        """The outcome of a call."""
        return await self.planner.call(self.prefix + tool, args)

    def lines(self, word: str) -> int:
        """How many lines of the ledger contain a word."""
        text = self.ledger.read_text(encoding="utf-8") if self.ledger.exists() else ""
        return sum(word in line for line in text.splitlines())


@pytest.fixture
def official(planner: Planner, tmp_path: Path) -> Official:
    return Official(planner, tmp_path / "ledger")


@contextlib.asynccontextmanager
async def over_http(official: Official) -> AsyncIterator[str]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), str(port), env={**os.environ, "LEDGER": str(official.ledger)}
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


async def answers(official: Official) -> None:
    """Every kind of answer: a value with its schema, text, an image as an artifact, a failure, progress."""
    assert (await official.call("add", a=1, b=2)).observation == {"sum": 3}
    assert (await official.call("shout", text="hey")).observation == "HEY"
    assert "nothing to shout" in fault_of(await official.call("shout", text="")).reason
    drawn = await official.call("draw")
    assert drawn.observation == "a dot\n(image-1: an artifact)\n(file-2: an artifact)"
    assert drawn.artifacts["image-1"]["mime_type"] == "image/png"
    assert drawn.artifacts["file-2"]["size"] == len(b"a,b\n")  # And not that of its base64.
    run = await official.planner.request(official.prefix + "work", {"steps": 3})
    assert (await official.planner.outcome(run)).observation == "worked"
    shown = [event for event in await official.planner.shown(run) if isinstance(event, ToolProgress)]
    assert ("step 1", 1 / 3) in [(event.message, event.fraction) for event in shown]
    spec = await official.planner.spec(official.prefix + "add")
    assert (spec.idempotent, spec.side_effects, spec.tags) == (False, "external", ["mcp:official"])


async def is_cancelled(official: Official) -> None:
    """A call of a run that ends is cancelled on the server, which lives on."""
    before = official.lines("began")
    run = await official.planner.request(official.prefix + "work", {"steps": 500})
    await wait_until(lambda: official.lines("began") > before, what="the tool works")
    await official.planner.end_run(run)
    await wait_until(lambda: official.lines("cancelled"), what="it is cancelled")
    assert (await official.call("add", a=1, b=2)).observation == {"sum": 3}


@pytest.mark.usefixtures("store")
async def test_a_command(official: Official, start_runner: Start) -> None:
    """It answers, is cancelled, and sees named variables alone."""
    await start_runner(servers=[official.server()])
    await answers(official)
    names = set((await official.call("environment")).observation.split())
    assert "NAMED" in names
    assert not [name for name in names if name.startswith(("RUNWIRE", "PYTEST"))]
    await is_cancelled(official)


@pytest.mark.usefixtures("store")
async def test_an_address(official: Official, start_runner: Start) -> None:
    """The same over HTTP, where the end of the stream cancels."""
    async with over_http(official) as url:
        await start_runner(servers=[official.server(url=url)])
        await answers(official)
        await is_cancelled(official)
