"""Services on a NATS server that knows users, with the right login and with a wrong one, or that speaks TLS."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.messaging.connection import Bus
from services.runtime.settings import BusSettings
from tests.support.certificates import make_certificates, tls_of_server
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_until_blocking

LOGIN = {"RUNWIRE_NATS_USER": "runwire", "RUNWIRE_NATS_PASSWORD": "canary-8Hq2"}
USERS = 'authorization { users: [ { user: "runwire", password: "canary-8Hq2" }, { user: "other", password: "x" } ] }'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that admits two users and nobody else."""
    with NatsServer(tmp_path / "nats", extra=USERS) as server:
        yield server


@pytest.mark.timeout(180)
def test_every_service_logs_in(server: NatsServer, tmp_path: Path) -> None:
    """By its two variables; the password is in no log."""
    tool = tmp_path / "tool.py"
    tool.write_text("from runwire import tool\n\n@tool(desc='Nothing')\ndef nothing() -> None: ...\n")
    with S3Server("rclone", tmp_path / "s3") as s3:
        env = {**s3.settings, **LOGIN, "RUNWIRE_LOG_LEVEL": "debug"}
        counts = {"planners": 1, "tool_runners": 1, "artifact_stores": 1, "tool_copies": 1}
        with Stack(server.url, tmp_path / "stack", env, tools=tool, **counts) as stack:  # type: ignore[arg-type]
            assert {name.split("-")[0] for name in stack.parts} == {
                "planner",
                "tool_runner",
                "artifact_store",
                "gateway",
                "tools",
            }
            for name in stack.parts:
                assert LOGIN["RUNWIRE_NATS_PASSWORD"] not in stack.log_of(name).read_text()


async def test_the_certificate_of_the_server_is_checked(tmp_path: Path) -> None:
    """By the given authority; without it the server is not trusted."""
    certificates = make_certificates(tmp_path / "certificates")
    with NatsServer(tmp_path / "nats", extra=tls_of_server(certificates)) as server:
        bus = await Bus("test", BusSettings(nats_url=server.url, nats_ca=certificates / "ca.pem")).connect()
        assert bus.is_connected
        await bus.leave()
        with capture_logs() as logged, pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await Bus("test", BusSettings(nats_url=f"tls://127.0.0.1:{server.port}")).connect()
    assert [each["event"] for each in logged if each["log_level"] == "warning"] == ["nats_tls_failed"]


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_a_server_without_tls_is_sent_nothing(scheme: str, server: NatsServer, tmp_path: Path) -> None:
    """Where TLS is demanded, by the URL or by an authority."""
    ca = make_certificates(tmp_path / "certificates") / "ca.pem" if scheme == "nats" else None
    settings = BusSettings(
        nats_url=f"{scheme}://127.0.0.1:{server.port}", nats_user="runwire", nats_password="canary-8Hq2", nats_ca=ca
    )
    with capture_logs() as logged, pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await Bus("test", settings).connect()
    assert [each["event"] for each in logged if each["log_level"] == "warning"] == ["nats_tls_failed"]
    assert "offers no TLS" in str(logged)


def test_a_served_tool_says_that_it_was_refused(server: NatsServer, tmp_path: Path) -> None:
    """And which variables it looked at."""
    tool, log = tmp_path / "tool.py", tmp_path / "log"
    tool.write_text("from runwire import tool\n\n@tool(desc='Nothing')\ndef nothing() -> None: ...\n")
    env = {"RUNWIRE_NATS_URL": server.url, "PYTHONPATH": str(ROOT), "RUNWIRE_DATA_DIR": str(tmp_path / "nowhere")}
    with log.open("wb") as target:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "runwire", "serve", str(tool)], env=env, stdout=target, stderr=target
        )
    try:
        wait_until_blocking(
            lambda: "RUNWIRE_NATS_PASSWORD" in log.read_text(), timeout=30, what="it says what is missing"
        )
    finally:
        process.kill()
        process.wait()
    assert "Authorization Violation" in log.read_text()
