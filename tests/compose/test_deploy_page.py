"""docs/deploy.md is carried out, and what has been attached by it is called, receives what it may, and is cut off."""

import json
import os
import time
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.compose.deployment import MODEL, TENANTS, Deployment
from tests.compose.page import Shell, blocks
from tests.support.buses import processed
from tests.support.checkout import ROOT
from tests.support.model_server import ModelServer, action, answer
from tests.support.nats_server import admits
from tests.support.waiting import wait_until

SQUARE = [{"name": f"{a}{b}", "latitude": a, "longitude": b} for a in (0, 1) for b in (0, 1)]
CALLS: dict[str, dict[str, Any]] = {
    "count_words": {"text": "to be or not to be"},
    "weekday": {"date": "2024-02-29"},
    "simulate_queue": {"arrivals_per_s": 1.8, "service_s": 1, "servers": 2, "customers": 30_000},
    "plan_route": {"places": SQUARE},
}
"""What the tools of the page are called with: two in Python, one in Go, one in TypeScript."""

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]


async def test_the_page_can_be_carried_out(deployment: Deployment, provider: ModelServer) -> None:
    """Every command succeeds and prints what the page says."""
    for tool, args in CALLS.items():
        provider.by_turn(action(tool, **args), answer("It was called."), marker=f"call {tool}!")
    shell, section = Shell(deployment), ""
    kept: dict[str, str] = {}
    try:
        for block in blocks(ROOT / "docs/deploy.md"):
            if section != block.section == "Listen to runs":
                check_calls(deployment)
            if section != block.section == "Other machines, with TLS":
                await check_listener(deployment)
                await check_revocation(deployment)
            if section != block.section == "Backup":
                kept = keep(deployment)
            elif block.section == "Backup":  # The second block brings back what has been lost.
                deployment.down()
            section = block.section
            shell.carry_out(block)
            if section == "Other machines, with TLS":
                login = json.loads((deployment.folder / "weekday.json").read_text(encoding="utf-8"))
                # Right, but without TLS.
                assert not admits(deployment.nats_port, login["user"], login["password"])
        assert kept == {path: read(deployment, path) for path in kept}
    finally:
        shell.close()


def keep(deployment: Deployment) -> dict[str, str]:
    """Make an artifact and a table; the paths at which they are read, and what is read there."""
    with deployment.client() as client:
        artifact = client.post("/v1/artifacts", files={"file": ("kept", os.urandom(1_000_000).hex())}).json()
        (deployment.folder / "kept.csv").write_text("Name,Deals\nAnn,4\nBo,2\n", encoding="utf-8")
        address = ("--url", str(client.base_url), "--api-key", deployment.key)
    deployment.run("runwire", "tables", "import", "kept.csv", "--yes", *address)
    paths = (f"/v1/artifacts/{artifact['artifact_id']}", "/v1/tables/kept/rows")
    made = {path: read(deployment, path) for path in paths}
    assert "Ann" in made[paths[1]]
    return made


def read(deployment: Deployment, path: str) -> str:
    with deployment.client() as client:
        got = client.get(path)
    assert got.status_code == 200, got.text
    return got.text


def check_calls(deployment: Deployment) -> None:
    """Each tool that was attached is called by a run; the one whose credential was replaced is back by itself."""
    with deployment.client() as client:
        for tool in CALLS:
            chat = client.post("/chat", json={"query": f"call {tool}!", "model": MODEL, "tools": [tool]})
            assert chat.status_code == 200, chat.text
            run = chat.json()["run_id"]
            steps = client.get(f"/v1/runs/{run}/events", headers={"Accept": "text/event-stream"}).text
            calls = [step for step in map(_data, steps.splitlines()) if step.get("node") == tool]
            assert [call["status"] for call in calls][-1:] == ["succeeded"], calls


def _data(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {}
    return found


def credential(deployment: Deployment, *of: str) -> dict[str, str]:
    made: dict[str, str] = json.loads(deployment.compose("run", "--rm", "-T", "credentials", *of))
    return made


async def connection(login: dict[str, str], errors: list[str]) -> Client:
    async def on_error(error: Exception) -> None:
        errors.append(str(error).lower())

    options: dict[str, Any] = {"allow_reconnect": False, "error_cb": on_error}
    return await nats.connect(login["url"], user=login["user"], password=login["password"], **options)


async def check_listener(deployment: Deployment) -> None:
    """It receives the runs of its tenant and nothing of another, and works without a restart."""
    errors: list[str] = []
    client = await connection(credential(deployment, "listener", TENANTS[0]), errors)
    tenants: set[str] = set()

    async def on_record(message: Msg) -> None:
        tenants.add(message.subject.split(".")[1])

    for pattern in ("run.acme.>", "run.zenith.>", "run.>", "emit.>"):
        await client.subscribe(pattern, cb=on_record)
    await processed(client)
    for tenant in reversed(TENANTS):
        with deployment.client(tenant) as gateway:
            assert gateway.post("/chat", json={"query": "What is 17*23?"}).status_code == 200
    await wait_until(lambda: "acme" in tenants, what="a record of its own tenant arrives")
    assert tenants == {"acme"}
    assert len([error for error in errors if "permissions violation" in error]) == 3
    await client.close()


async def check_revocation(deployment: Deployment) -> None:
    """The connection is closed when the command has ended."""
    errors: list[str] = []
    login = credential(deployment, "tool", "gone")
    client = await connection(login, errors)
    deployment.compose("run", "--rm", "-T", "credentials", "revoke", login["user"])
    ended = time.monotonic()
    await wait_until(lambda: client.is_closed, what="the connection is closed")
    assert time.monotonic() - ended < 1
    assert not admits(deployment.nats_port, login["user"], login["password"])
