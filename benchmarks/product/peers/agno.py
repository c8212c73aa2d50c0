"""Agno's AgentOS with its runs in SQLite: it keeps a run once it has ended, and a kill loses it."""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson

from benchmarks.product.client import Received, nothing
from benchmarks.product.peers.base import Peer, answers
from benchmarks.product.processes import running
from benchmarks.product.script import Script
from benchmarks.product.side import Side
from contracts.wire.names import new_id
from tests.support.needs import free_port

_ENDS = {b"RunCompleted", b"RunPaused", b"RunError", b"RunCancelled"}


class Agno(Peer):
    """One process of uvicorn."""

    name = "agno"
    install = """\
  python3 -m venv $PEERS_HOME/venvs/agno
  $PEERS_HOME/venvs/agno/bin/pip install 'agno[os]==3.1.10' openai sqlalchemy aiosqlite uvloop httptools"""
    programs = ("venvs/agno/bin/uvicorn",)

    @asynccontextmanager
    async def started(self, folder: Path, model_url: str, http: aiohttp.ClientSession) -> AsyncIterator[Side]:
        """Start it."""
        port, log = free_port(), folder / "server.log"
        command = [str(self.home / self.programs[0]), "agno_app:app", "--port", str(port), "--log-level", "warning"]
        env = {
            **os.environ,
            "AGNO_TELEMETRY": "false",
            "PEER_FOLDER": str(folder),
            "PEER_MODEL_URL": model_url,
            "PYTHONPATH": str(Path(__file__).parent / "apps"),
        }
        with running(command, log, env) as server:
            url = f"http://127.0.0.1:{port}"
            await answers(http, f"{url}/health", log)
            yield Side(AgnoClient(http, url), (server.pid,))


class AgnoClient:
    """Asks the agent of `agno_app`."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = f"{url}/agents/scripted/runs"

    async def ask(self, script: Script, on_step: Callable[[int], None] = nothing) -> Received:
        """Start a run and follow it to its end."""
        seen, event = Received(), b""
        form = {"message": script.question(), "stream": "true", "session_id": new_id()}
        async with self._http.post(self._url, data=form) as reply:
            reply.raise_for_status()
            async for line in reply.content:
                if line.startswith(b"event: "):
                    event = line[7:].strip()
                    if event in _ENDS:  # Its data repeat the whole run.
                        break
                elif event == b"RunContent" and line.startswith(b"data: "):
                    seen.add_text(orjson.loads(line[6:]).get("content") or "")
                elif event == b"ToolCallCompleted" and line.startswith(b"data: "):
                    seen.observed_at.append(time.monotonic())
                    on_step(len(seen.observed_at))
            await reply.read()
        seen.took_s = time.monotonic() - seen.began
        if event != b"RunCompleted" or len(seen.ages_s) < script.tokens or len(seen.observed_at) != script.calls:
            raise RuntimeError(f"{script} ended otherwise: {event!r}")
        return seen
