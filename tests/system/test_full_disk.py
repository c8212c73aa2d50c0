"""`runwire up` on a full disk: the errors meanwhile, and that everything continues once there is room."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts.wire.operation import NOT_STORED
from runwire.local import launch
from tests.support.needs import needs_program
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.stack import ROOT
from tests.support.waiting import wait_until_blocking

pytestmark = pytest.mark.timeout(300)
_GOES_ON_S = 15
"""Five seconds on a machine of its own."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """The disk of the data folder, logs and all."""
    with small_disk(tmp_path / "disk", mib=96) as found:
        yield found


def environment(disk: SmallDisk) -> dict[str, str]:
    return {
        **os.environ,
        "RUNWIRE_DATA_DIR": str(disk.folder),
        "PYTHONPATH": str(ROOT),
        "RUNWIRE_MODEL": "builtin/rehearsal",
    }


@pytest.fixture
def up(disk: SmallDisk, tmp_path: Path) -> Iterator[httpx.Client]:
    """`runwire up` in a process of its own; gives a client of its gateway."""
    needs_program("nats-server")
    with (tmp_path / "up.log").open("wb") as log:
        command = [sys.executable, "-P", "-m", "runwire", "up", "--port", "0"]
        process = subprocess.Popen(command, env=environment(disk), stdout=log, stderr=log, cwd=tmp_path)
    try:
        wait_until_blocking(
            lambda: launch.remembered(disk.folder) or process.poll() is not None, timeout=120, what="it is up"
        )
        with httpx.Client(base_url=launch.remembered(disk.folder)["url"], timeout=30) as http:
            yield http
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        sys.stdout.write((tmp_path / "up.log").read_text())


def asked(http: httpx.Client, question: str = "What is 17*23?") -> httpx.Response:
    return http.post("/v1/runs", json={"query": question})


def made(http: httpx.Client) -> list[str]:
    """Addresses of what can be made still: the last block of a file may have room on a full disk."""
    found = []
    schedule = {"cron": "0 0 1 1 *", "run": {"query": "x"}}
    bodies: dict[str, dict[str, Any]] = {"schedule": {"json": schedule}, "artifact": {"content": b"x"}}
    for name, body in bodies.items():
        path = f"/v1/{name}s"
        while (answer := http.post(path, **body)).status_code == httpx.codes.CREATED:
            found.append(f"{path}/{answer.json()[f'{name}_id']}")
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
    return found


@pytest.mark.chaos
def test_everything_goes_on_once_there_is_room(up: httpx.Client, disk: SmallDisk) -> None:
    """503 and a reason while the disk is full; then every run that was accepted ends, and what was made is there."""
    runs = [asked(up).json()["run_id"] for _ in range(5)]
    disk.fill()
    kept = made(up)
    while (answer := asked(up)).status_code == httpx.codes.ACCEPTED:
        runs.append(answer.json()["run_id"])
    assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert "retry-after" in answer.headers
    wait_until_blocking(lambda: NOT_STORED in up.get("/readyz").text, timeout=10, what="readiness has failed")
    ready = up.get("/readyz")
    assert ready.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert "is the disk of NATS full?" in ready.text
    doctor = subprocess.run(
        [sys.executable, "-P", "-m", "runwire", "doctor", "--url", str(up.base_url), "-o", "json"],
        env=environment(disk),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    failed = {check["name"]: check for check in json.loads(doctor.stdout) if check["status"] == "failed"}
    assert doctor.returncode == 1
    assert "full" in failed["data"]["finding"]
    assert NOT_STORED in failed["gateway"]["finding"]
    assert "free disk space" in failed["gateway"]["mend"]

    disk.make_room()
    began = time.monotonic()
    wait_until_blocking(
        lambda: asked(up).status_code == httpx.codes.ACCEPTED, timeout=_GOES_ON_S, what="a run is accepted again"
    )
    sys.stdout.write(f"accepted again after {time.monotonic() - began:.1f} s\n")
    wait_until_blocking(
        lambda: up.get("/readyz").status_code == httpx.codes.OK, timeout=_GOES_ON_S, what="the gateway is ready again"
    )

    def open_runs() -> list[str]:
        return [run for run in runs if up.get(f"/v1/runs/{run}").json()["ended_at"] is None]

    wait_until_blocking(lambda: not open_runs(), timeout=60, what="all runs have ended")
    assert {up.get(address).status_code for address in kept} <= {httpx.codes.OK}
