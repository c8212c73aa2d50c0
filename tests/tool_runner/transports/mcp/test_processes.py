"""The processes of servers: none outlives the tool runner, whatever becomes of it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from services.tool_runner.transports.mcp.config import McpServer
from services.tool_runner.transports.mcp.server import ConnectionLost, ServerLink
from services.tool_runner.transports.mcp.streams import Notes, streams_of
from tests.support import mcp_server
from tests.support.forked import Forked
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner


def processes(*words: str) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [int(file.parent.name)] if all(word in line for word in words) else []
    return found


@contextlib.contextmanager
def runner_with(url: str, script: Path, **told: Any) -> Iterator[Forked]:
    """A tool runner with one server, whose tool is `<name of the script>_look`."""
    script.write_text(json.dumps({"tools": [{"name": "look", "description": "Looks."}], **told}))
    command = {"command": sys.executable, "args": ["-S", mcp_server.__file__, str(script)], "approval": "never"}
    file = script.with_suffix(".servers.json")
    file.write_text(json.dumps({"mcpServers": {script.stem: command}}))
    environment = {"RUNWIRE_NATS_URL": url, "RUNWIRE_MCP_SERVERS_FILE": str(file), "RUNWIRE_LOG_LEVEL": "warning"}
    runner = Forked("services.tool_runner.__main__:main", environment=environment)
    try:
        yield runner
    finally:
        runner.kill()
        runner.wait()


async def test_a_killed_tool_runner_leaves_no_process(server: NatsServer, planner: Planner, tmp_path: Path) -> None:
    """Neither the server, nor its child, nor what guards them."""
    script = tmp_path / "killed.json"
    with runner_with(server.url, script, rules=[{"on": "notifications/initialized", "do": [{"spawn": 600}]}]):
        await planner.spec("killed_look")
        await wait_until(lambda: len(processes(str(script))) == 3, what="the guard, the server and its child run")
    await wait_until(lambda: not processes(str(script)), what="all of its processes are gone")


async def test_a_tool_runner_that_is_stopped_finishes_its_calls(
    server: NatsServer, planner: Planner, tmp_path: Path
) -> None:
    """Its servers are there until then."""
    script = tmp_path / "stopped.json"
    found = {"result": {"content": [{"type": "text", "text": "found"}]}}
    with runner_with(server.url, script, rules=[{"on": "tools/call", "do": [{"sleep": 0.5}, found]}]) as runner:
        await planner.spec("stopped_look")
        call = await planner.request("stopped_look", {})
        log = script.with_suffix(".log")
        await wait_until(lambda: "tools/call" in log.read_text("utf-8"), what="the server has the call")
        os.kill(runner.pid, signal.SIGTERM)
        assert (await planner.outcome(call)).observation == "found"


async def test_a_server_ends_whose_guard_was_killed(tmp_path: Path) -> None:
    """With its child: the whole group is killed at the end."""
    script = tmp_path / "unguarded.json"
    script.write_text(json.dumps({"rules": [{"on": "(start)", "do": [{"spawn": 600}, {"sleep": 600}]}]}))
    args = ["-S", mcp_server.__file__, str(script)]
    server = McpServer.model_validate({"name": "unguarded", "command": sys.executable, "args": args})
    async with streams_of(server, Notes()):
        await wait_until(lambda: len(processes(str(script))) == 3, what="the guard, the server and its child run")
        (guard,) = processes(str(script), "guard.py")
        os.kill(guard, signal.SIGKILL)
    await wait_until(lambda: not processes(str(script)), what="all of its processes are gone")


async def test_a_connection_that_ends_while_its_tool_runner_stops(tmp_path: Path) -> None:
    """In the same moment: it is not opened again."""
    script = tmp_path / "ended.json"
    script.write_text(json.dumps({"tools": [{"name": "look"}], "rules": [{"on": "tools/call", "do": [{"exit": 1}]}]}))
    args = ["-S", mcp_server.__file__, str(script)]
    link = ServerLink(McpServer(name="ended", prefix="", command=sys.executable, args=args), asyncio.Event())
    running = asyncio.create_task(link.run())
    session = await link.opened()
    assert session is not None
    with pytest.raises(ConnectionLost):
        await session.call("look", {"arguments": {}}, AsyncMock())
    running.cancel()
    await asyncio.wait([running], timeout=20)
    assert running.cancelled()
