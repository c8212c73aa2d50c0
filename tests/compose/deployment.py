"""One deployment by docker-compose.yml: a copy of the checkout in a folder, with ports and volumes of its own."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.support.checkout import ROOT, files
from tests.support.needs import free_port, skip

_BUILD_NETWORK = os.environ.get("RUNWIRE_TEST_BUILD_NETWORK")
"""Docker's network for builds, where the default one reaches no registry. Read at import, see `_clean_environment`."""
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("RUNWIRE_")}
_START_S = 600
TENANTS = ("acme", "zenith")
MODEL = "openai/scripted"


def needs_compose() -> None:
    """Skip where no Docker Engine or no Compose answers."""
    for command in (["docker", "version"], ["docker", "compose", "version"]):
        if shutil.which("docker") is None or subprocess.run(command, capture_output=True, check=False).returncode:
            skip("Docker with Compose is not here")


class CommandFailed(AssertionError):
    """A command ended with an error; the end of its output is the message."""


class Deployment:
    """The containers and volumes of one project.

    Attributes:
        folder: of docker-compose.yml, where commands run.
        port: of the gateway on this machine.
        nats_port: of NATS on this machine.
    """

    def __init__(self, folder: Path, project: str) -> None:
        self.folder = folder
        self.port, self.nats_port = free_port(), free_port()
        self.environment = {
            **_ENVIRONMENT,
            "COMPOSE_PROJECT_NAME": project,
            "RUNWIRE_PORT": str(self.port),
            "RUNWIRE_NATS_PORT": str(self.nats_port),
            "PATH": f"{Path(sys.executable).parent}:{_ENVIRONMENT['PATH']}",
        }

    def copy_checkout(self) -> None:
        """Copy what git keeps or would keep of this checkout."""
        for file in files():
            to = self.folder / file.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, to)

    def run(self, *command: str, timeout: float = _START_S) -> str:
        """Run a command in the folder and return its stdout. Raises CommandFailed."""
        limited = ["timeout", str(timeout), *command]
        ran = subprocess.run(
            limited, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise CommandFailed(f"{' '.join(command)}: {ran.returncode}\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")
        return ran.stdout

    def compose(self, *arguments: str) -> str:
        return self.run("docker", "compose", *arguments)

    def build(self) -> None:
        arguments: list[str] = []
        if _BUILD_NETWORK:
            profiles = ("--profile", "tls", "--profile", "commands")
            services = json.loads(self.compose(*profiles, "config", "--format", "json"))["services"]
            built = {name: {"build": {"network": _BUILD_NETWORK}} for name, one in services.items() if "build" in one}
            override = self.folder / "build_network.json"
            override.write_text(json.dumps({"services": built}), encoding="utf-8")
            arguments = ["-f", "docker-compose.yml", "-f", str(override)]
        self.compose(*arguments, "build")

    def up(self) -> None:
        try:
            self.compose("up", "-d", "--wait")
        except CommandFailed as error:
            raise CommandFailed(f"{error}\n{self.state()}") from None

    def state(self) -> str:
        """What the containers are, and the last of what each says: for the message of an error."""
        return f"{self.compose('ps', '-a')}\n{self.compose('logs', '--tail', '20')}"

    def down(self) -> None:
        self.compose("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "10")

    @property
    def key(self) -> str:
        return self.compose("exec", "-T", "gateway", "cat", "/secrets/api_key").strip()

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=120)


def until(condition: Any, what: str, timeout: float = 120) -> Any:
    """Wait until the condition returns something, and return it. An unreachable gateway is waited for."""
    ends_at = time.monotonic() + timeout
    while time.monotonic() < ends_at:
        try:
            if found := condition():
                return found
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"not within {timeout} s: {what}")
