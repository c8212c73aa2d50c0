"""Runwire as it is deployed: every service and tool as a process of its own, which a test may kill, stop and wake.

Processes are named `<kind>-<number>`: `planner-1`, `tool_runner-2`, `tools-1`, `gateway-1`. Each is known by its pid
and ended by it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from contracts.wire.rights import LOCAL_TOOLS, PROVISIONER
from contracts.wire.subject import SERVICES
from services.messaging.provisioner.__main__ import provision_once
from services.runtime.settings import BusSettings

from .forked import Forked, die_with_parent
from .needs import free_port
from .waiting import wait_until_blocking

#: Seconds until a started process must be ready; importing LiteLLM on a busy machine takes most of it.
READY_LIMIT = 90
STOP_LIMIT = 15
ROOT = Path(__file__).resolve().parents[2]
#: Whether `make coverage` runs the tests.
MEASURED = "COVERAGE_PROCESS_START" in os.environ

_SHOWN = 8_000
_FORKED = {f"services.{name}" for name in (*SERVICES, "tables")}
_SERVE = "import sys; from runwire.serving import main; main(sys.argv[1:])"


class ProcessEnded(RuntimeError):
    """A process ended by itself before it was ready; the end of its log is the message."""


@dataclass
class Part:
    """One process: how it is started, where it says that it is ready, and what became of it."""

    name: str
    command: list[str]
    port: int
    env: dict[str, str]
    sign: bytes = b""
    """What its log says once it is ready; empty: `/readyz` is asked."""
    target: tuple[str, *tuple[list[str], ...]] | None = None
    """The function, with its arguments, that a forked process runs in place of the command."""
    process: subprocess.Popen[bytes] | Forked | None = None
    frozen: bool = False
    began_at: int = 0
    """The size of its log when it was started last."""

    @property
    def alive(self) -> bool:
        """Whether it runs, frozen or not."""
        return self.process is not None and self.process.poll() is None


@dataclass
class Stack:
    """Starts services and tools and keeps hold of them.

    Attributes:
        nats_url: where all of them connect.
        passwords: of the users of NATS, each service being its own and tools being `local`; empty: no users.
        folder: logs, one per name, and whatever a test puts there.
        env: added to the environment of every process (`RUNWIRE_*`).
        artifact_stores: how many; `env` tells them (as it tells all) where the S3 server is.
        tools: a Python file of tools, served `tool_copies` times; None: no tools.
        is_fresh: each process is a Python of its own, as in a deployment; else services and tools are forked from one
            that has imported them.
        url: of the first gateway.
    """

    nats_url: str
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    planners: int = 2
    tool_runners: int = 2
    gateways: int = 1
    artifact_stores: int = 0
    tools: Path | None = None
    tool_copies: int = 2
    passwords: Mapping[str, str] = field(default_factory=dict)
    is_fresh: bool = MEASURED or "PYTEST_VERSION" not in os.environ
    parts: dict[str, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Plan the parts; nothing is started yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        services = {
            "artifact_store": self.artifact_stores,
            "planner": self.planners,
            "tool_runner": self.tool_runners,
            "gateway": self.gateways,
        }
        for kind, count in services.items():
            for number in range(1, count + 1):
                self.add(f"{kind}-{number}", "-m", f"services.{kind}")
        if self.tools is not None:
            for number in range(1, self.tool_copies + 1):
                self.add_tools(f"tools-{number}", self.tools)

    def add(self, name: str, *arguments: str, sign: bytes = b"") -> None:
        """Plan one more process: `python -P` with these arguments."""
        port = free_port()
        own = {
            "RUNWIRE_NATS_URL": self.nats_url,
            "RUNWIRE_HEALTH_PORT": str(port),
            "RUNWIRE_PORT": str(port),
            "PYTHONPATH": str(ROOT),
            **self.login(kind if (kind := name.rsplit("-", 1)[0]) in SERVICES else LOCAL_TOOLS),
        }
        command = [sys.executable, "-P", *arguments]
        self.parts[name] = part = Part(name, command, port, {**own, **self.env}, sign)
        if not self.is_fresh and arguments[0] == "-c":
            part.target = ("runwire.serving:main", [*arguments[2:]])
        elif not self.is_fresh and arguments[1] in _FORKED:
            part.target = (f"{arguments[1]}.__main__:main",)

    def add_tools(self, name: str, file: Path) -> None:
        """Plan one more process that serves the tools of a file."""
        self.add(name, "-c", _SERVE, str(file), sign=b"serving ")

    def login(self, user: str) -> dict[str, str]:
        """The environment of a process that connects as this user."""
        return {"RUNWIRE_NATS_USER": user, "RUNWIRE_NATS_PASSWORD": self.passwords[user]} if self.passwords else {}

    @property
    def url(self) -> str:
        """Of the first gateway, `http://127.0.0.1:<port>`."""
        return self.url_of("gateway-1")

    def url_of(self, name: str) -> str:
        """Where a process answers HTTP."""
        return f"http://127.0.0.1:{self.parts[name].port}"

    def names(self, kind: str) -> list[str]:
        """The planned processes of a kind."""
        return [name for name in self.parts if name.rsplit("-", 1)[0] == kind]

    def __enter__(self) -> Self:
        """Start everything and return once all are ready."""
        self.provision()
        try:
            for name in self.parts:
                self.spawn(name)
            for name in self.parts:
                self._wait_at_first(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End whatever still runs."""
        for part in self.parts.values():
            if part.process is not None and part.alive:
                # SIGKILL ends a frozen process too. Coverage is written by a process that ends by itself.
                self._signal(part.name, signal.SIGTERM if MEASURED and not part.frozen else signal.SIGKILL)
        for part in self.parts.values():
            self._wait(part.name)

    def provision(self) -> None:
        """Make the streams, as every deployment does before its services start."""
        provision(self.nats_url, **self.login(PROVISIONER), **self.env)

    def spawn(self, name: str) -> None:
        """Start a process; it is not ready yet. Does nothing while it runs."""
        part = self.parts[name]
        if part.alive:
            return
        part.frozen = False
        environment = {**os.environ, **part.env}
        with self.log_of(name).open("ab") as log:
            part.began_at = log.tell()
            if part.target:
                part.process = Forked(*part.target, environment=environment, log=self.log_of(name), folder=self.folder)
                return
            part.process = subprocess.Popen(
                part.command,
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
            )

    def wait_ready(self, name: str) -> None:
        """Return once the process says that it is ready. Raises ProcessEnded when it ended instead."""

        def ready() -> bool:
            if not self.parts[name].alive:
                raise ProcessEnded(f"{name}: {self.tail_of(name)}")
            return self.is_ready(name)

        wait_until_blocking(ready, timeout=READY_LIMIT, what=f"{name} is ready")

    def _wait_at_first(self, name: str) -> None:
        try:
            self.wait_ready(name)
        except ProcessEnded as ended:
            if "address already in use" not in str(ended):
                raise
            part = self.parts[name]  # Another worker has drawn the same port.
            part.port = free_port()
            part.env |= {"RUNWIRE_HEALTH_PORT": str(part.port), "RUNWIRE_PORT": str(part.port)}
            self.spawn(name)
            self.wait_ready(name)

    def is_ready(self, name: str) -> bool:
        """Whether the process says that it is ready."""
        part = self.parts[name]
        if part.sign:
            return part.sign in self.log_of(name).read_bytes()[part.began_at :]
        return answers_ready(part.port)

    def pid(self, name: str) -> int:
        """Of the process now running under the name."""
        process = self.parts[name].process
        assert process is not None, f"{name} was never started"
        return process.pid

    def kill(self, name: str) -> None:
        """End a process as a crash would."""
        self._signal(name, signal.SIGKILL)
        self._wait(name)

    def terminate(self, name: str) -> None:
        """Ask a process to end, as a rolling restart does, and wait until it has."""
        self._signal(name, signal.SIGTERM)
        self._wait(name)

    def freeze(self, name: str) -> None:
        """Stop a process in its tracks: it holds its connections and does nothing."""
        self._signal(name, signal.SIGSTOP)
        self.parts[name].frozen = True

    def thaw(self, name: str) -> None:
        """Let a frozen process go on, with everything that waits in its sockets."""
        self._signal(name, signal.SIGCONT)
        self.parts[name].frozen = False

    def mend(self) -> None:
        """Bring everything back: wake what is frozen, start what has ended, and return once all are ready."""
        for name, part in self.parts.items():
            if part.alive and part.frozen:
                self.thaw(name)
            self.spawn(name)
        for name in self.parts:
            self.wait_ready(name)

    def log_of(self, name: str) -> Path:
        """Where a process writes its output, all starts in one file."""
        return self.folder / f"{name}.log"

    def tail_of(self, name: str, since: int = 0) -> str:
        """The end of a process's output, from byte `since` on."""
        log = self.log_of(name)
        if not log.exists():
            return ""
        return log.read_bytes()[since:][-_SHOWN:].decode(errors="replace")

    @contextlib.contextmanager
    def showing_logs(self) -> Iterator[None]:
        """Print afterwards what the processes have logged meanwhile; pytest shows it when the test has failed."""
        began = {name: log.stat().st_size for name in self.parts if (log := self.log_of(name)).exists()}
        try:
            yield
        finally:
            for name in self.parts:
                if text := self.tail_of(name, began.get(name, 0)).strip():
                    sys.stdout.write(f"--- {name}\n{text}\n")

    def _signal(self, name: str, by: signal.Signals) -> None:
        process = self.parts[name].process
        if process is not None and process.poll() is None:
            process.send_signal(by)

    def _wait(self, name: str) -> None:
        process = self.parts[name].process
        if process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT)
        process.kill()
        process.wait()


def provision(nats_url: str, **env: str) -> None:
    """Do what the provisioner does."""
    given = {name.removeprefix("RUNWIRE_").lower(): value for name, value in env.items()}
    doing = provision_once(BusSettings.model_validate({"nats_url": nats_url, **given}), READY_LIMIT)
    with ThreadPoolExecutor() as thread:  # A caller may have a loop of its own.
        thread.submit(asyncio.run, doing).result()


def answers_ready(port: int) -> bool:
    """Whether the service with this port says that it is ready."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.settimeout(1)
        connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return b" 200 " in connection.recv(64)
    return False


def resident(pid: int) -> float:
    """MiB of memory that a process holds. Linux alone tells."""
    return (
        int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)
    )
