"""Restate: its server journals each step of a handler. It shows the answer at the end and no token or step before."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from benchmarks.product.client import Received, nothing
from benchmarks.product.peers.base import Peer, answers
from benchmarks.product.processes import running
from benchmarks.product.script import Script
from benchmarks.product.side import Side
from tests.support.needs import free_port


class Restate(Peer):
    """Its server, and a process with the handler."""

    name = "restate"
    install = """\
  python3 -m venv $PEERS_HOME/venvs/restate
  $PEERS_HOME/venvs/restate/bin/pip install 'restate-sdk[serde]==1.3.0' hypercorn httpx
  npm install --prefix $PEERS_HOME/npm @restatedev/restate-server"""
    programs = (
        "venvs/restate/bin/python",
        "npm/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server",
    )

    @asynccontextmanager
    async def started(self, folder: Path, model_url: str, http: aiohttp.ClientSession) -> AsyncIterator[Side]:
        """Start both, and register the handler."""
        python, restate_server = (str(self.home / program) for program in self.programs)
        ingress, admin, node, port = (free_port() for _ in range(4))
        env = {
            **os.environ,
            "DO_NOT_TRACK": "1",
            "PEER_MODEL_URL": model_url,
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
            "RESTATE_LOG_FILTER": "warn",
        }
        command = [restate_server, "--base-dir", str(folder / "base"), "--node-name", "bench"]
        app = [python, str(Path(__file__).parent / "apps" / "restate_app.py"), str(port)]
        log, url = folder / "server.log", f"http://127.0.0.1:{ingress}"
        with running(command, log, env) as server, running(app, folder / "app.log", env) as handler:
            await answers(http, f"http://127.0.0.1:{admin}/health", log)
            await answers(http, f"{url}/restate/health", log)
            await _register(http, f"http://127.0.0.1:{admin}/deployments", f"http://127.0.0.1:{port}")
            yield Side(RestateClient(http, url), (server.pid, handler.pid), streams=False)


async def _register(http: aiohttp.ClientSession, deployments: str, uri: str) -> None:
    """Register the handler, once its process listens."""
    async with asyncio.timeout(60):
        while True:
            async with http.post(deployments, json={"uri": uri}) as reply:
                if reply.ok:
                    return
            await asyncio.sleep(0.1)


class RestateClient:
    """Asks the handler of `restate_app`."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = f"{url}/agent/run"

    async def ask(self, script: Script, on_step: Callable[[int], None] = nothing) -> Received:  # noqa: ARG002
        """Start a run and wait for its answer."""
        seen = Received()
        async with self._http.post(self._url, json=script.question(), headers={"idempotency-key": script.key}) as reply:
            reply.raise_for_status()
            seen.add_text(await reply.json())
        seen.took_s = time.monotonic() - seen.began
        if len(seen.ages_s) < script.tokens:
            raise RuntimeError(f"{script} ended without its whole answer")
        return seen
