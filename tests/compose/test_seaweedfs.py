"""SeaweedFS in the place of MinIO, by the lines of docs/deploy.md."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.deployment import CommandFailed, Deployment, needs_compose, until
from tests.support.checkout import ROOT

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1200)]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """A deployment with the `.env` of the page."""
    needs_compose()
    made = Deployment(tmp_path / "clone", "runwire-seaweedfs")
    made.copy_checkout()
    page = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    lines = re.search(r"^```ini\n(COMPOSE_PROFILES=seaweedfs\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert lines
    (made.folder / ".env").write_text(lines[1], encoding="utf-8")
    made.build()
    yield made
    made.down()


def test_artifacts_are_in_seaweedfs(deployment: Deployment) -> None:
    """MinIO is not started; bytes outlive a restart; nobody reads without a key."""
    deployment.up()
    running = deployment.compose("ps", "--services").split()
    assert "seaweedfs" in running
    assert "minio" not in running
    data = os.urandom(3_000_000)
    with deployment.client() as client:
        artifact = client.post("/v1/artifacts", files={"file": ("blob", data)}).json()["artifact_id"]
        deployment.compose("restart", "seaweedfs", "artifact_store")
        path = f"/v1/artifacts/{artifact}"
        answer = until(lambda: (got := client.get(path)).status_code == 200 and got, "the store is back")
        assert answer.content == data
    with pytest.raises(CommandFailed, match="403"):
        deployment.compose("exec", "-T", "seaweedfs", "wget", "-q", "-O", "-", "http://127.0.0.1:9000/runwire/")
