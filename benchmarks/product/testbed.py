"""Everything that is measured, as processes: `runwire up`, the model server, and beside them the bare loop and peers.

The client is this process. All sides get the same model server and the same tool.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import aiohttp

from benchmarks.product import processes
from benchmarks.product.client import Client
from benchmarks.product.peers.base import Peer
from benchmarks.product.processes import running
from benchmarks.product.script import Script
from benchmarks.product.side import Side
from benchmarks.ratio_tables import Table, spread
from runwire.local.data_folder import remembered
from tests.support.needs import free_port

PRODUCT, BARE = "product", "bare loop"
_TOOLS = Path(__file__).with_name("tools.py")
_READY_TIMEOUT_S = 120
_KEEP_ALIVE_S = 2.0
"""Shorter than a server's, which closes a connection after some seconds, perhaps as the next request is written."""


@dataclass
class Testbed:
    """What a part works with. `calls` is the file in which the tool notes the calls that take time."""

    gateway: Client
    sides: dict[str, Side]
    calls: Path

    def streaming(self) -> dict[str, Side]:
        """The sides that show tokens and steps while they work."""
        return {name: side for name, side in self.sides.items() if side.streams}


def by_process(title: str, costs: list[dict[str, float]]) -> Table:
    """Milliseconds by process of the product, from rounds that have a figure for each."""
    table = Table(f"{title}, by process of the product", ("process", "ms"), "Model server and client do not count.")
    for name in [name for name in (*processes.NAMES, "other") if name in costs[0]]:
        table.add(name, spread([cost[name] for cost in costs]))
    return table


@asynccontextmanager
async def started(
    peers: Mapping[str, Peer] = MappingProxyType({}), up_options: tuple[str, ...] = ()
) -> AsyncIterator[Testbed]:
    """Start everything, and end it afterwards. Raises RuntimeError with the log of what does not become ready.

    `up_options` are further arguments of `runwire up`.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="runwire-bench-")))
        model, bare = free_port(), free_port()
        model_url = f"http://127.0.0.1:{model}/v1"
        env = {name: value for name, value in os.environ.items() if not name.startswith("RUNWIRE_")} | {
            "BENCHMARK_CALLS": str(folder / "calls"),
            "NO_PROXY": "127.0.0.1",
            "RUNWIRE_DATA_DIR": str(folder / "data"),
            "RUNWIRE_LOG_LEVEL": "warning",
            "RUNWIRE_MODEL": "openai/scripted",
            "RUNWIRE_MODEL_API_BASE": model_url,
            "RUNWIRE_MODEL_API_KEY": "none",
        }
        (folder / "calls").touch()

        def run(module: str, *arguments: str) -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-m", module, *arguments]
            return stack.enter_context(running(command, folder / f"{module}.log", env))

        run("benchmarks.product.model_server", str(model))
        loop = run("benchmarks.product.bare_loop", str(bare), model_url)
        launcher = run("runwire", "up", "--port", "0", "--tools", str(_TOOLS), *up_options)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
        session = aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1 << 20)
        http = await stack.enter_async_context(session)
        gateway = Client(http, await _url(folder, launcher))
        sides = {
            PRODUCT: Side(gateway, (launcher.pid,)),
            BARE: Side(Client(http, f"http://127.0.0.1:{bare}"), (loop.pid,)),
        }
        for name, peer in peers.items():
            (folder / name).mkdir()
            sides[name] = await stack.enter_async_context(peer.started(folder / name, model_url, http))
        await _until_the_tool_is_known(http, gateway.url)
        for side in sides.values():
            await side.client.ask(Script(calls=3))
        yield Testbed(gateway, sides, folder / "calls")


async def _url(folder: Path, launcher: "subprocess.Popen[bytes]") -> str:
    until = time.monotonic() + _READY_TIMEOUT_S
    while not (found := remembered(folder / "data")):
        if launcher.poll() is not None or time.monotonic() > until:
            raise RuntimeError("`runwire up` did not start: " + (folder / "runwire.log").read_text(encoding="utf-8"))
        await asyncio.sleep(0.05)
    return str(found["url"])


async def _until_the_tool_is_known(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(_READY_TIMEOUT_S):
        while True:
            async with http.get(f"{url}/v1/tools") as reply:
                if "echo" in await reply.text():
                    return
            await asyncio.sleep(0.05)
