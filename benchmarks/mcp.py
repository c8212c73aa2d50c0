"""(n) A call of a tool of an MCP server: as a planner asks tool_runner for it, beside the official client alone.

Run: python -m benchmarks.mcp [--rounds 10] [--calls 200]

The server is written with the official SDK and runs as two processes, over standard input and output, and as one over
HTTP. What tool_runner does beside the client: NATS, the checks of arguments and result, and a record for its log.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from nats.aio.msg import Msg

from benchmarks.ratio_tables import Table, alternate, quantile, ratios, spread
from contracts.tools.messages import DIRECT_HEADER, CallRequested, RunnerAnnouncement, ToolSpec
from contracts.wire import keys, subjects
from contracts.wire.names import new_id, unix_ms
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.runtime.settings import BusSettings
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port
from tests.support.stack import ROOT, Stack

Call = Callable[[int], Awaitable[Any]]
_SERVER = str(ROOT / "tests" / "tool_runner" / "transports" / "mcp" / "official_server.py")
_WARM_UP = 50


async def _ours(bus: Bus, instance: str, tool: str, spec: str, a: int) -> None:
    """Make a direct call."""
    call = CallRequested(
        call_id="1-1", run_id=new_id(), tenant="default", tool=tool, args={"a": a, "b": 1}, spec=spec, step=1,
        start_by=unix_ms() + 1000,
    )  # fmt: skip

    def is_begun(reply: Msg) -> bool:
        return (reply.headers or {})[DIRECT_HEADER] == "begun"

    reply = await bus.request(
        subjects.direct_call(instance), call.model_dump_json().encode(), wait_s=5, interim=is_begun
    )
    if (reply.headers or {})[DIRECT_HEADER] != "finished" or b"succeeded" not in reply.data:
        raise RuntimeError(f"{tool}: {reply.headers} {reply.data[:300]!r}")


async def _theirs(client: Client, a: int) -> None:
    result = await client.call_tool("add", {"a": a, "b": 1})
    if result.structured_content != {"sum": a + 1}:
        raise RuntimeError(str(result))


async def _timed(call: Call, calls: int, at_once: int) -> float:
    """Return the median over the calls of a round, in milliseconds."""
    found: list[float] = []

    async def one_after_another(number: int) -> None:
        for a in range(number, calls, at_once):
            began = time.perf_counter()
            await call(a)
            found.append((time.perf_counter() - began) * 1e3)

    await asyncio.gather(*(one_after_another(number) for number in range(at_once)))
    return quantile(found, 0.5)


@contextlib.asynccontextmanager
async def _running(folder: Path, url: str) -> AsyncIterator[tuple[Bus, str, dict[str, str]]]:
    """Start a tool runner with both servers; a connection to it, its instance, and each tool with its specification."""
    file = folder / "servers.json"
    command = {"command": sys.executable, "args": [_SERVER], "approval": "never"}
    file.write_text(json.dumps({"mcpServers": {"stdio": command, "http": {"url": url, "approval": "never"}}}))
    with contextlib.ExitStack() as ending:
        server = NatsServer(folder / "nats")
        server.start()
        ending.callback(server.kill)
        env = {"RUNWIRE_MCP_SERVERS_FILE": str(file)}
        ending.enter_context(Stack(server.url, folder / "stack", env, planners=0, tool_runners=1, gateways=0))
        bus = await Bus("bench", BusSettings(nats_url=server.url)).connect()
        announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def on_announcement(message: Msg) -> None:
            if not announced.done():
                announced.set_result(RunnerAnnouncement.model_validate_json(message.data).instance)

        await bus.subscribe(subjects.runner(), on_announcement)
        bucket, specs = Bucket(bus, keys.CATALOGUE_BUCKET), dict[str, str]()
        async with asyncio.timeout(60):
            while len(specs) < 2:
                for tool in ("stdio_add", "http_add"):
                    if data := (await bucket.get(keys.live_tool(tool))).data:
                        specs[tool] = ToolSpec.model_validate_json(data).digest()
                await asyncio.sleep(0.05)
            instance = await announced
        yield bus, instance, specs
        await bus.leave()


async def compared(rounds: int, calls: int) -> Table:
    """Measure both ways, over both transports, one call at a time and eight."""
    table = Table(
        "(n) a call of a tool of an MCP server",
        ("over", "at once", "official client, ms", "tool_runner, ms", "ratio, to be <= 2"),
        f"{rounds} rounds of {calls} calls; from the request to its result, the median of a round.",
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    env = {**os.environ, "LEDGER": os.devnull}
    parameters = StdioServerParameters(command=sys.executable, args=[_SERVER], env=env)
    with TemporaryDirectory(prefix="runwire-bench-") as name:
        http = await asyncio.create_subprocess_exec(sys.executable, _SERVER, str(port), env=env)
        try:
            async with (
                _running(Path(name), url) as (bus, instance, specs),
                Client(stdio_client(parameters)) as stdio_client_alone,
                Client(streamable_http_client(url)) as http_client_alone,
            ):
                for over, client in (("stdio", stdio_client_alone), ("http", http_client_alone)):
                    tool = f"{over}_add"
                    ours: Call = partial(_ours, bus, instance, tool, specs[tool])
                    theirs: Call = partial(_theirs, client)
                    for at_once in (1, 8):
                        for each in (ours, theirs):
                            await _timed(each, _WARM_UP, at_once)
                        cases = {
                            "ours": partial(_timed, ours, calls, at_once),
                            "theirs": partial(_timed, theirs, calls, at_once),
                        }
                        found = await alternate(rounds, cases)
                        compared_with = ratios(found["ours"], found["theirs"])
                        table.add(
                            over, str(at_once), spread(found["theirs"]), spread(found["ours"]), spread(compared_with)
                        )
        finally:
            http.kill()
            await http.wait()
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mcp", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    print(uvloop.run(compared(given.rounds, given.calls)).text())
