"""The store as a process: settings from the environment and from secret files, health, and what it says of itself."""

import json
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
from pydantic import ValidationError

from runwire.cli.commands import doctor
from services.artifact_store.settings import ArtifactStoreSettings
from services.shared.artifacts.client import ArtifactClient
from tests.support.buses import connected, provisioned
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import KEYS, S3Server
from tests.support.stack import Stack
from tests.support.waiting import wait_until

KEY_NAMES = ("RUNWIRE_S3_ACCESS_KEY", "RUNWIRE_S3_SECRET_KEY")


async def test_keys_come_from_files_and_every_subject_is_announced(
    server: NatsServer, rclone: S3Server, tmp_path: Path
) -> None:
    """As a deployment with secrets starts it."""
    env = {name: value for name, value in rclone.settings.items() if name not in KEY_NAMES}
    for name, secret in zip(KEY_NAMES, KEYS.values(), strict=True):
        file = tmp_path / name
        file.write_text(f"{secret}\n")
        env[f"{name}_FILE"] = str(file)
    stack = Stack(server.url, tmp_path / "logs", env=env, planners=0, tool_runners=0, gateways=0)
    stack.add("artifact_store-1", "-m", "services.artifact_store")
    async with provisioned(server.url) as bus:
        with stack.showing_logs(), stack:
            ref = await ArtifactClient(bus).put("files", b"bytes")
            assert ref.size == 5
            async with httpx.AsyncClient(base_url=stack.url_of("artifact_store-1")) as http:
                ready = await http.get("/readyz")
            info = json.loads((await bus.request("$SRV.INFO.runwire-artifact_store", b"", 5)).data)
    assert ready.json()["status"] == "ready"
    for verb in ("put", "open", "get", "head", "list", "delete", "assemble"):
        assert f"artifact.{verb}" in info["metadata"]["subjects"].split()


async def test_the_doctor_says_that_the_s3_server_is_away(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway works without it, so nobody else would."""
    monkeypatch.setenv("RUNWIRE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("RUNWIRE_NATS_URL", server.url)

    async def found(expected: list[tuple[str, str]]) -> bool:
        checks = await doctor.service_checks()
        assert all("RUNWIRE_S3_ENDPOINT" in check.mend for check in checks)
        return [(check.name, check.status) for check in checks] == expected

    with S3Server("rclone", tmp_path) as s3:
        stack = Stack(server.url, tmp_path / "logs", env=s3.settings, planners=0, tool_runners=0, gateways=0)
        stack.add("artifact_store-1", "-m", "services.artifact_store")
        async with connected(server.url) as bus:
            with stack.showing_logs(), stack:
                await ArtifactClient(bus).put("files", b"bytes")
                await wait_until(partial(found, []), what="nothing is wrong")
                s3.stop()
                await wait_until(partial(found, [("s3", "failed")]), what="the S3 server is missed")


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("minio:9000", ("minio:9000", False, "us-east-1")),
        ("http://minio:9000", ("minio:9000", False, "us-east-1")),
        ("https://s3.example.org/", ("s3.example.org", True, "us-east-1")),
        ("s3.eu-central-1.amazonaws.com", ("s3.eu-central-1.amazonaws.com", True, "eu-central-1")),
        ("https://s3.dualstack.us-gov-west-1.amazonaws.com", (ANY, True, "us-gov-west-1")),
        ("s3.amazonaws.com", ("s3.amazonaws.com", True, "us-east-1")),
    ],
)
def test_endpoints(endpoint: str, expected: tuple[str, bool, str]) -> None:
    """A host, or a URL whose scheme decides; an address of AWS says its region, and means TLS."""
    assert tuple(_settings(s3_endpoint=endpoint).endpoint()) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        *({"s3_endpoint": text} for text in ("https://s3.example.org/bucket", "http://", "https://key@s3.example.org")),
        *({"s3_bucket": text} for text in ("my..bucket", "192.168.0.1", "Bucket", "b")),
    ],
    ids=str,
)
def test_what_is_no_endpoint_or_bucket_is_refused(wrong: dict[str, str]) -> None:
    """Before a server is asked, with the setting in which the bucket belongs."""
    with pytest.raises(ValidationError, match=r"(?i)s3_bucket"):
        _settings(**wrong)


def test_key_files_are_read_again(tmp_path: Path) -> None:
    """Keys are rotated. A byte order mark is no part of a key, and a missing file is named."""
    file = tmp_path / "key"
    file.write_bytes(b"\xef\xbb\xbffirst\r\n")
    settings = ArtifactStoreSettings(s3_access_key="access", s3_secret_key_file=file)
    assert settings.keys() == ("access", "first")
    file.write_text("second\n")
    assert settings.keys() == ("access", "second")
    file.unlink()
    with pytest.raises(ValidationError, match=r"RUNWIRE_S3_SECRET_KEY_FILE: .* cannot be read"):
        ArtifactStoreSettings(s3_access_key="access", s3_secret_key_file=file)


def _settings(**more: Any) -> ArtifactStoreSettings:
    return ArtifactStoreSettings(s3_access_key="access", s3_secret_key="secret-key", **more)
