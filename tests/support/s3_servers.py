"""Real S3 servers on loopback that a test may freeze, kill and restart: rclone, SeaweedFS, and MinIO if installed."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import urllib3
from minio import Minio

from runwire.local.embedded_nats import Keys, prepare, rclone_command, rclone_environment

from .forked import die_with_parent
from .needs import free_port, needs_program
from .waiting import wait_until_blocking

START_LIMIT = 40
STOP_LIMIT = 15
KEYS = Keys(access="testaccess", secret="testsecret123")
MINIO = os.environ.get("RUNWIRE_TEST_MINIO") or shutil.which("minio")
"""The program, where somebody has it. Read at import, since tests run without variables of this kind."""


class S3ServerFailed(RuntimeError):
    """The server ended before it was ready; the end of its log is the message."""


class S3Server:
    """One server. Port and folder stay the same over restarts, so clients find it again.

    Attributes:
        kind: `rclone`, `weed` or `minio`.
        port: of S3, on loopback.
        data: its folder; it outlives kill, stop and start.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        """Prepare a server that keeps everything in `folder`."""
        self.kind = kind
        self.data = folder / "data"
        self.log = folder / f"{kind}.log"
        self._run = folder / "run"
        self.port = free_port()
        self._others = [free_port() for _ in range(7)]
        self._process: subprocess.Popen[bytes] | None = None
        self._run.mkdir(parents=True, exist_ok=True)

    @property
    def settings(self) -> dict[str, str]:
        """The environment of an artifact store that uses this server."""
        return {
            "RUNWIRE_S3_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "RUNWIRE_S3_ACCESS_KEY": KEYS.access,
            "RUNWIRE_S3_SECRET_KEY": KEYS.secret,
            "RUNWIRE_S3_BUCKET": "test-bucket",
        }

    @property
    def client(self) -> Minio:
        """The raw client, for what tests look at behind the store's back."""
        pool = urllib3.PoolManager(timeout=urllib3.Timeout(connect=1, read=10), retries=False)
        return Minio(
            endpoint=f"127.0.0.1:{self.port}",
            access_key=KEYS.access,
            secret_key=KEYS.secret,
            secure=False,
            region="us-east-1",
            http_client=pool,
        )

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and return once it answers. Does nothing while it runs.

        Call it in the main thread: on Linux the server ends with the *thread* that has started it.
        """
        if self._process is not None and self._process.poll() is None:
            return
        prepare(self.data)
        command, env = self._command()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **env},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._run,
                # Else a killed test run leaves orphans.
                preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )
        wait_until_blocking(self._ready, timeout=START_LIMIT, what=f"{self.kind} answers on port {self.port}")

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise S3ServerFailed(self.log.read_text(errors="replace")[-2000:])
        try:
            self.client.list_buckets()
        except Exception:  # noqa: BLE001, whatever it is: not yet
            return False
        return True

    def stop(self) -> None:
        """End the server in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Let it hang: connections are taken, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # Until then it may still answer.

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(by)
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill: nobody needs what is in it any more."""
        self.kill()

    def _command(self) -> tuple[list[str], Mapping[str, str]]:
        if self.kind == "rclone":
            return rclone_command(str(needs_program("rclone")), self.data, self.port), rclone_environment(KEYS)
        if self.kind == "weed":
            return self._weed(), {"AWS_ACCESS_KEY_ID": KEYS.access, "AWS_SECRET_ACCESS_KEY": KEYS.secret}
        command = [
            MINIO or str(needs_program("minio")),
            "server",
            str(self.data),
            "--address",
            f"127.0.0.1:{self.port}",
            "--quiet",
        ]
        return command, {"MINIO_ROOT_USER": KEYS.access, "MINIO_ROOT_PASSWORD": KEYS.secret, "MINIO_BROWSER": "off"}

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
