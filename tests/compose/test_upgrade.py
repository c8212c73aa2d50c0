"""A deployment of before NATS had users becomes one of this version, then of the one before; nothing is lost."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compose.deployment import Deployment, needs_compose, until

BEFORE_USERS = "2c33b590cba3b82f386ae6100e33935ddeb3bade"
"""The last commit whose NATS has no users."""
BEFORE_TASKS = "35e16602cab7b0828242e67b69626b721e2d2c7b"
"""The last commit without background tasks. Streams of this version go back no further than to conversations."""
SLOW_TOOL = """
import asyncio

from runwire import tool


@tool(desc="Wait patiently for the ferry and say when it has come", idempotent=True, timeout_s=120)
async def ferry(minutes: int = 20) -> dict[str, str]:
    print("beginning to wait", flush=True)
    await asyncio.sleep(25)
    return {"answer": "the ferry has come"}
"""
SERVICE = """
services:
  ferry:
    image: runwire/tools
    command: [python, -P, -m, runwire, serve, {options}/tool/ferry.py]
    user: "{user}"
    environment:
      RUNWIRE_NATS_URL: nats://nats:4222
    volumes: ["./ferry.py:/tool/ferry.py:ro", "./ferry.json:/tool/ferry.json:ro"]
    networks: [{network}]
    restart: unless-stopped
"""

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]


@pytest.fixture
def versions(tmp_path: Path) -> Iterator[tuple[Deployment, Deployment, Deployment]]:
    """Three versions of one project: they share volumes and ports, and one runs at a time."""
    needs_compose()
    old, new, previous = (Deployment(tmp_path / name, "runwire-upgrade") for name in ("old", "new", "previous"))
    old.copy_commit(BEFORE_USERS)
    new.copy_checkout()
    previous.copy_commit(BEFORE_TASKS)
    with_login = ("--credentials, /tool/ferry.json, ", "tools")
    for deployment, (options, network) in ((old, ("", "bus")), (new, with_login), (previous, with_login)):
        deployment.environment = old.environment
        deployment.port, deployment.nats_port = old.port, old.nats_port
        (deployment.folder / "ferry.py").write_text(SLOW_TOOL, encoding="utf-8")
        (deployment.folder / "ferry.json").touch()
        service = SERVICE.format(options=options, network=network, user=os.getuid())
        (deployment.folder / "docker-compose.override.yml").write_text(service, encoding="utf-8")
    yield old, new, previous
    previous.down()


def start(deployment: Deployment, query: str) -> str:
    """Ask for a run, and return its id."""
    with deployment.client() as client:
        answer = client.post("/v1/runs", json={"query": query})
    assert answer.status_code == 202, answer.text
    run: str = answer.json()["run_id"]
    return run


def run_status(deployment: Deployment, run: str) -> dict[str, Any]:
    """How a run stands."""
    with deployment.client() as client:
        found: dict[str, Any] = client.get(f"/v1/runs/{run}").json()
    return found


def events(deployment: Deployment, run: str) -> list[str]:
    """The types of all events of a run that has ended."""
    with deployment.client() as client:
        text = client.get(f"/v1/runs/{run}/events", headers={"Accept": "text/event-stream"}).text
    return [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]


def ended(deployment: Deployment, run: str) -> str:
    """Wait for the end of a run, check that it is one, and return the answer."""
    until(lambda: run_status(deployment, run).get("status") not in {None, "queued", "running"}, f"{run} has ended")
    assert run_status(deployment, run)["status"] == "done", run_status(deployment, run)
    terminal = [kind for kind in events(deployment, run) if kind in {"done", "error", "cancelled"}]
    assert terminal == ["done"]
    answer: str = run_status(deployment, run)["payload"]["raw_answer"]
    return answer


def content(deployment: Deployment, artifact: str) -> bytes:
    """The bytes of an artifact."""
    with deployment.client() as client:
        answer = client.get(f"/v1/artifacts/{artifact}")
    assert answer.status_code == 200, answer.text
    return answer.content


def test_an_upgrade_and_a_rollback_lose_nothing(versions: tuple[Deployment, Deployment, Deployment]) -> None:
    """A run that waits for a slow tool, one that is queued, one that has ended, and an artifact are all there."""
    old, new, previous = versions
    old.build()
    old.up()
    key = old.key
    finished = start(old, "What is 17*23?")
    answer = ended(old, finished)
    assert "391" in answer
    data = os.urandom(3_000_000)
    with old.client() as client:
        artifact = client.post("/v1/artifacts", files={"file": ("blob", data)}).json()["artifact_id"]
        until(lambda: "ferry" in client.get("/v1/tools").text, "the slow tool is found")
    waiting = start(old, "Wait patiently for the ferry")
    until(lambda: "beginning to wait" in old.compose("logs", "ferry"), "the slow tool is called")
    old.compose("stop", "planner")
    queued = start(old, "What is 2+2?")

    new.build()
    credential = new.compose(
        *("run", "--rm", "-T", "-e", "RUNWIRE_NATS_URL=", "credentials", "tool", "ferry"),
        "--server",
        "nats://nats:4222",
    )
    for deployment in (new, previous):
        (deployment.folder / "ferry.json").write_text(credential, encoding="utf-8")
    new.up()
    assert new.key == key
    assert "ferry has come" in ended(new, waiting)
    assert "4" in ended(new, queued)
    assert ended(new, finished) == answer
    assert content(new, artifact) == data
    assert "391" in ended(new, start(new, "What is 17*23?"))

    new.compose("down")
    previous.build()
    previous.up()
    assert "ferry has come" in ended(previous, waiting)
    assert ended(previous, finished) == answer
    assert content(previous, artifact) == data
    assert "391" in ended(previous, start(previous, "What is 17*23?"))
