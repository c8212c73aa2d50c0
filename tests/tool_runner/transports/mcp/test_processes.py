"""The processes of servers: none outlives the tool runner, whatever becomes of it."""

import json
import sys
from pathlib import Path

from tests.support import mcp_server
from tests.support.forked import Forked
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner


def processes(word: str) -> list[str]:
    """The command lines of processes that contain a word."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [line] if word in line else []
    return found


async def test_a_killed_tool_runner_leaves_no_process(server: NatsServer, planner: Planner, tmp_path: Path) -> None:
    """Neither the server, nor its child, nor what guards them."""
    script = tmp_path / "killed.json"
    tools = [{"name": "look", "description": "Looks."}]
    spawns = {"on": "notifications/initialized", "do": [{"spawn": 600}]}
    script.write_text(json.dumps({"tools": tools, "rules": [spawns]}))
    command = {"command": sys.executable, "args": ["-S", mcp_server.__file__, str(script)], "approval": "never"}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"killed": command}}))
    environment = {
        "RUNWIRE_NATS_URL": server.url,
        "RUNWIRE_MCP_SERVERS_FILE": str(file),
        "RUNWIRE_LOG_LEVEL": "warning",
    }
    runner = Forked("services.tool_runner.__main__:main", environment=environment)
    try:
        await planner.spec("killed_look")
        await wait_until(lambda: len(processes(str(script))) == 3, what="the guard, the server and its child run")
    finally:
        runner.kill()
        runner.wait()
    await wait_until(lambda: not processes(str(script)), what="all of its processes are gone")
