"""Real S3 servers on loopback that a test may freeze, kill and restart: rclone, SeaweedFS, and MinIO if installed."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import urllib3
from minio import Minio

from runwire.local.embedded_nats import prepare, rclone_command, rclone_environment

from .needs import free_port, needs_program
from .server_process import ServerProcess

KEYS = {"access": "testaccess", "secret": "testsecret123"}
MINIO = os.environ.get("RUNWIRE_TEST_MINIO") or shutil.which("minio")
"""The program, where somebody has it. Read at import, since tests run without variables of this kind."""


class S3Server(ServerProcess):
    """One server of S3.

    Attributes:
        kind: `rclone`, `weed` or `minio`.
        data: its folder; it outlives kill, stop and start.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        """Prepare a server that keeps everything in `folder`."""
        super().__init__(folder / f"{kind}.log")
        self.kind = kind
        self.data = folder / "data"
        self._run = folder / "run"
        self._others = [free_port() for _ in range(7)]
        self._run.mkdir(parents=True, exist_ok=True)

    @property
    def settings(self) -> dict[str, str]:
        """The environment of an artifact store that uses this server."""
        return {
            "RUNWIRE_S3_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "RUNWIRE_S3_ACCESS_KEY": KEYS["access"],
            "RUNWIRE_S3_SECRET_KEY": KEYS["secret"],
            "RUNWIRE_S3_BUCKET": "test-bucket",
        }

    @property
    def client(self) -> Minio:
        """The raw client, for what tests look at behind the store's back."""
        pool = urllib3.PoolManager(timeout=urllib3.Timeout(connect=1, read=10), retries=False)
        return Minio(
            endpoint=f"127.0.0.1:{self.port}",
            access_key=KEYS["access"],
            secret_key=KEYS["secret"],
            secure=False,
            region="us-east-1",
            http_client=pool,
        )

    def start(self) -> None:
        """Start the server and return once it answers. Does nothing while it runs.

        Call it in the main thread: on Linux the server ends with the *thread* that has started it.
        """
        if self.running:
            return
        prepare(self.data)
        command, environment = self._command()
        self._launch(command, self._run, environment)

    def _answers(self) -> bool:
        try:
            self.client.list_buckets()
        except Exception:  # noqa: BLE001, whatever it is: not yet
            return False
        return True

    def _command(self) -> tuple[list[str], Mapping[str, str]]:
        if self.kind == "rclone":
            needs_program("rclone")
            return rclone_command(self.data, self.port), rclone_environment(KEYS)
        if self.kind == "weed":
            return self._weed(), {"AWS_ACCESS_KEY_ID": KEYS["access"], "AWS_SECRET_ACCESS_KEY": KEYS["secret"]}
        command = [
            MINIO or str(needs_program("minio")),
            "server",
            str(self.data),
            "--address",
            f"127.0.0.1:{self.port}",
            "--quiet",
        ]
        return command, {
            "MINIO_ROOT_USER": KEYS["access"],
            "MINIO_ROOT_PASSWORD": KEYS["secret"],
            "MINIO_BROWSER": "off",
        }

    def _weed(self) -> list[str]:
        """All defaults that would listen elsewhere, report somewhere or let anybody in are switched off."""
        master, volume, filer, *grpc = self._others
        return [
            str(needs_program("weed")),
            f"-logdir={self._run}",
            "mini",
            f"-dir={self.data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-s3.port={self.port}",
            f"-master.port={master}",
            f"-volume.port={volume}",
            f"-filer.port={filer}",
            f"-master.port.grpc={grpc[0]}",
            f"-volume.port.grpc={grpc[1]}",
            f"-filer.port.grpc={grpc[2]}",
            f"-s3.port.grpc={grpc[3]}",
            f"-s3.localSocket={self._run}/s3.sock",
            f"-filer.localSocket={self._run}/filer.sock",
            "-master.telemetry=false",
            "-disableHttp=true",
            "-admin.ui=false",
            "-webdav=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            "-s3.allowDeleteBucketNotEmpty=false",
        ]


def kinds() -> list[str]:
    """The servers to test on. MinIO has no wheel, so it is only there on the path, or where RUNWIRE_TEST_MINIO says."""
    return ["rclone", "weed", *(["minio"] if MINIO else [])]
