"""All services with an artifact store and a scripted model that takes images, at DEBUG level. For large data."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from runwire.tools import Tool
from tests.support.model_server import ModelServer, Say
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_until
from tests.system import artifact_tools

BLIND = "openai/blind"
"""A model of the planners that takes no images."""
_TOOLS = ROOT / "tests" / "system" / "artifact_tools.py"
TOOL_NAMES = {"analyze_table"} | {each.name for each in vars(artifact_tools).values() if isinstance(each, Tool)}

Parts = tuple[Stack, NatsServer, S3Server, ModelServer]


@dataclass
class Whole:
    """What a test needs of it."""

    stack: Stack
    nats: NatsServer
    s3: S3Server
    model: ModelServer
    http: httpx.AsyncClient

    async def chat(self, marker: str, *replies: Say, **query: str) -> tuple[str, dict[str, Any]]:
        """Put a question for which the model has these replies; return the run and its payload."""
        self.model.by_turn(*replies, marker=marker)
        reply = await self.http.post("/chat", json={"query": f"Do it ({marker})."}, params=query)
        assert reply.status_code == 200, reply.text
        return reply.json()["run_id"], reply.json()["payload"]

    async def begin(self, marker: str, *replies: Say, **body: Any) -> str:
        self.model.by_turn(*replies, marker=marker)
        reply = await self.http.post("/v1/runs", json={"query": f"Do it ({marker}).", **body})
        assert reply.status_code == 202, reply.text
        run: str = reply.json()["run_id"]
        return run

    async def status(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.http.get(f"/v1/runs/{run}")).json()
        return found

    async def ended(self, run: str, timeout: float = 60) -> dict[str, Any]:
        """Wait for the end of a run and return its status."""

        async def has_ended() -> bool:
            return (await self.status(run))["ended_at"] is not None

        await wait_until(has_ended, timeout=timeout, what=f"run {run} has ended")
        return await self.status(run)

    async def listed(self, run: str) -> list[str]:
        """The ids of what a run has put away."""
        found = (await self.http.get(f"/v1/runs/{run}/artifacts")).json()
        return [each["ref"]["artifact_id"] for each in found["artifacts"]]

    def asked(self, marker: str) -> list[str]:
        """Everything that the model was sent for a question."""
        return [json.dumps(seen.body, ensure_ascii=False) for seen in list(self.model.ledger) if marker in seen.text]

    async def bytes_of(self, ref: dict[str, Any]) -> bytes:
        found = await self.http.get(f"/v1/artifacts/{ref['artifact_id']}")
        assert found.status_code == 200, found.text
        return found.content

    async def has_tools(self) -> None:
        """Return once the gateway offers all of them."""

        async def announced() -> bool:
            return {spec["name"] for spec in (await self.http.get("/v1/tools")).json()["tools"]} >= TOOL_NAMES

        await wait_until(announced, timeout=20, what="the tools are there")


@contextlib.contextmanager
def deployed(folder: Path) -> Iterator[Parts]:
    """Two planners, and one of everything else; who breaks something mends it."""
    with (
        NatsServer(folder / "nats", identities=True) as nats,
        ModelServer() as model,
        S3Server("rclone", folder / "s3") as s3,
        stack_of(nats, model, s3, folder / "stack") as stack,
    ):
        yield stack, nats, s3, model


def stack_of(nats: NatsServer, model: ModelServer, s3: S3Server, folder: Path, planners: int = 2) -> Stack:
    """The processes, not yet started."""
    env = {
        "RUNWIRE_MODEL": "openai/scripted",
        "RUNWIRE_MODEL_API_BASE": model.url,
        "RUNWIRE_MODEL_API_KEY": "none",
        "RUNWIRE_MODEL_VISION": '{"openai/scripted": true}',
        "RUNWIRE_FALLBACK_MODELS": json.dumps([BLIND]),
        "RUNWIRE_LOG_LEVEL": "debug",
        **s3.settings,
    }
    stack = Stack(nats.url, folder, env, planners, tool_runners=1, artifact_stores=1, passwords=nats.passwords)
    stack.add_tools("tools-1", _TOOLS)
    stack.add_tools("tools-table", ROOT / "examples" / "demo" / "table.py")
    return stack
