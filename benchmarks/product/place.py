"""Everything that is measured, as processes: `runwire up`, the model server, and beside them the bare loop.

The client is this process. Product and bare loop get the same model server and the same tool.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from benchmarks.product import processes
from benchmarks.product.client import Client
from benchmarks.product.script import Script
from runwire.local.data_folder import remembered
from tests.support.needs import free_port

_ROOT = Path(__file__).resolve().parents[2]
_TOOLS = Path(__file__).with_name("tools.py")
_READY_TIMEOUT_S = 120
_KEEP_ALIVE_S = 2.0
"""Shorter than a server's, which closes a connection after some seconds, perhaps as the next request is written."""
_SETTLE_S = 0.1
"""After a case: what a run leaves to do once its client has its end belongs to it."""


@dataclass
class Side:
    """The product, or the bare loop: a client and the processes that serve it."""

    client: Client
    launcher: int

    def pids(self) -> dict[int, str]:
        """Its processes now: process id → name."""
        return processes.family(self.launcher)

    def meter(self) -> "Meter":
        """Begin to measure CPU time."""
        return Meter(self.pids())


class Meter:
    """CPU time of processes from now on."""

    def __init__(self, pids: dict[int, str]) -> None:
        self._pids = pids
        self._before = processes.cpu_s(pids)

    async def used_s(self) -> dict[str, float]:
        """Seconds of CPU by process, once what the runs have left to do is done."""
        await asyncio.sleep(_SETTLE_S)
        return {name: after - self._before[name] for name, after in processes.cpu_s(self._pids).items()}


@dataclass
class Place:
    """What a part works with. `calls` is the file in which the tool notes the calls that take time."""

    product: Side
    bare: Side
    calls: Path

    def sides(self) -> dict[str, Side]:
        """Both, by name."""
        return {"product": self.product, "bare": self.bare}


@asynccontextmanager
async def started() -> AsyncIterator[Place]:
    """Start everything, and end it afterwards. Raises RuntimeError with the log of what does not become ready."""
    with TemporaryDirectory(prefix="runwire-bench-") as name:
        folder = Path(name)
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
        up = ("runwire", "up", "--port", "0", "--tools", str(_TOOLS))
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
        with (
            _process(folder, env, "benchmarks.product.model_server", str(model)),
            _process(folder, env, "benchmarks.product.bare_loop", str(bare), model_url) as loop,
            _process(folder, env, *up) as launcher,
        ):
            async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1 << 20) as http:
                url = await _url(folder, launcher)
                place = Place(
                    Side(Client(http, url), launcher.pid),
                    Side(Client(http, f"http://127.0.0.1:{bare}"), loop.pid),
                    folder / "calls",
                )
                await _until_the_tool_is_known(http, url)
                for side in place.sides().values():
                    await side.client.ask(Script(calls=3))
                yield place


@contextmanager
def _process(folder: Path, env: dict[str, str], module: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    with (folder / f"{module}.log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=_ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


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
