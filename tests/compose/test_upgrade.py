"""A deployment is built again from other sources while runs are open, and from the former ones; nothing is lost."""

import os
from typing import Any

import pytest

from tests.compose.deployment import MODEL, Deployment, until
from tests.support.model_server import ModelServer, Say, answer

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]


def start(deployment: Deployment, query: str) -> str:
    with deployment.client() as client:
        accepted = client.post("/v1/runs", json={"query": query, "model": MODEL})
    assert accepted.status_code == 202, accepted.text
    run: str = accepted.json()["run_id"]
    return run


def ended(deployment: Deployment, run: str) -> str:
    """Wait for the end of a run, check that it ended once and well, and return the answer."""

    def status() -> dict[str, Any] | None:
        with deployment.client() as client:
            found: dict[str, Any] = client.get(f"/v1/runs/{run}").json()
        return None if found.get("status") in {None, "queued", "running"} else found

    found = until(status, f"{run} has ended")
    with deployment.client() as client:
        text = client.get(f"/v1/runs/{run}/events", headers={"Accept": "text/event-stream"}).text
    ends = {"event: done", "event: error", "event: cancelled"}
    assert [line for line in text.splitlines() if line in ends] == ["event: done"], text
    said: str = found["payload"]["raw_answer"]
    return said


def test_an_upgrade_and_a_rollback_lose_nothing(deployment: Deployment, provider: ModelServer) -> None:
    """A run whose model is asked and one that is queued go on; what has ended and an artifact are there."""
    provider.say(answer("quick."), marker="quick?")
    deployment.up()
    finished = start(deployment, "quick?")
    assert ended(deployment, finished) == "quick."
    data = os.urandom(3_000_000)
    with deployment.client() as client:
        artifact = client.post("/v1/artifacts", files={"file": ("blob", data)}).json()["artifact_id"]

    mains = sorted(deployment.folder.glob("services/*/__main__.py"))
    former = {main: main.read_text(encoding="utf-8") for main in mains}
    for version, is_back in (("newer", False), ("former", True)):
        containers = set(deployment.compose("ps", "-q").split())
        provider.say(Say(silent=True), answer(f"{version}."), marker=f"{version}?")
        asked = start(deployment, f"{version}?")
        until(lambda name=version: [seen for seen in provider.ledger if f"{name}?" in seen.text], "the model is asked")
        deployment.compose("stop", "planner")
        queued = start(deployment, "quick?")
        for main, text in former.items():
            main.write_text(text if is_back else f"{text}\n# A newer version.\n", encoding="utf-8")
        if is_back:
            deployment.compose("down")
        deployment.build()
        deployment.up()
        assert len(containers - set(deployment.compose("ps", "-q").split())) >= len(mains)
        assert ended(deployment, asked) == f"{version}."
        assert ended(deployment, queued) == ended(deployment, finished) == "quick."
        with deployment.client() as client:
            assert client.get(f"/v1/artifacts/{artifact}").content == data
