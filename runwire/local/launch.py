"""Start everything on one machine: nats-server, the services and the example tools as supervised child processes.

Rule 1: everything is stopped in the reverse order: tools and gateway first, nats-server last, so that running requests
can end.
Rule 2: all state is in one folder, which one launcher at a time may use.
Rule 3: every process gets an environment of its own (`configuration`); none inherits the launcher's.
"""

import asyncio
import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.wire.operation import NOT_STORED
from contracts.wire.rights import LOCAL_TOOLS, PROVISIONER
from runwire.local import configuration, embedded_nats
from runwire.local.data_folder import data_dir, published, remembered, withdraw
from runwire.local.embedded_nats import find_nats_server
from runwire.local.forks import Forks
from runwire.local.supervisor import CannotLaunch, Child, Supervisor, module_command

__all__ = ["CannotLaunch", "Child", "Plan", "Stopped", "data_dir", "find_nats_server", "remembered", "running"]


_LOADED = [f"services.{name}.__main__" for name in ("planner", "tool_runner", "artifact_store", "gateway", "tables")]
_LOADED += ["services.messaging.provisioner.__main__", "anyio._backends._asyncio", "encodings.idna"]
_TOOLS_REFUSED_EXIT_CODE = 1
"""`runwire serve` ends with it when a file cannot be served. It waits for everything else."""
_OFFERED_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 1 << 20
_CHECK_INTERVAL_S, _SETTLING_S = 1.0, 8.0
"""Of whether nats-server stores. After a restart the services need a moment to notice that it does."""
_MIN_FREE_BYTES = 16 << 20


@contextlib.contextmanager
def locked(data: Path) -> Iterator[int]:
    """Lock the data folder. Until the end what is written is for its owner alone; yields the umask of before.

    Raises CannotLaunch when the folder cannot be written, or another launcher has locked it.
    """
    with contextlib.ExitStack() as undo:
        umask = os.umask(0o077)
        undo.callback(os.umask, umask)
        try:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            (data / "logs").mkdir(exist_ok=True)
            lock = undo.enter_context((data / "lock").open("w"))
        except OSError as error:
            why = "Not a directory" if isinstance(error, FileExistsError) else error.strerror
            raise CannotLaunch(f"{data} cannot be used: {why}; set RUNWIRE_DATA_DIR to a folder of yours") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CannotLaunch(
                f"another `runwire up` uses {data}; stop it, or set RUNWIRE_DATA_DIR to another folder"
            ) from error
        yield umask


def free_port(preferred: int = 0) -> int:
    """Return `preferred` if it is free on loopback, else one that the kernel chooses."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise CannotLaunch("no free port on loopback")


def listens(port: int) -> bool:
    """Whether something accepts connections on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.3)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answer(port: int, path: str, timeout_s: float = 0.5) -> bytes:
    """The answer of a loopback port to a GET, headers included; empty without an answer in time."""
    found = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        while len(found) < _MAX_ANSWER_BYTES and (piece := connection.recv(4096)):
            found += piece
    return found


def is_ready(port: int) -> bool:
    """Whether the service with this health port is ready."""
    return b" 200 " in answer(port, "/readyz")[:64]


@dataclass(frozen=True)
class Plan:
    """What to start.

    `tools` are files for `runwire serve`, by process. `planners` and `tool_runners` count processes. `sync` is the
    `sync_interval` of JetStream: "always", or a time such as "1s". `trust_tools`: offer specifications that nobody has
    accepted.
    """

    data: Path
    port: int
    tools: list[list[Path]]
    planners: int = 1
    tool_runners: int = 1
    sync: str = "always"
    trust_tools: bool = True


class Stopped(Exception):
    """Stopped before everything was ready."""


@contextlib.asynccontextmanager
async def running(
    plan: Plan, report: Callable[[str], None], stop: asyncio.Event, on_ready: Callable[[Child], None] = lambda _: None
) -> AsyncIterator[dict[str, Any]]:
    """Start everything; yields the endpoints (`url`, `nats_url`) once all is ready, and stops everything at the end.

    `on_ready`: called with each process when it is ready.
    Raises CannotLaunch; Stopped when `stop` is set before everything is ready. A process may find later that its
    configuration is wrong: that sets `stop`, and CannotLaunch is raised at the end.
    """
    with locked(plan.data) as umask:
        withdraw(plan.data)  # left behind by a launcher that was killed
        forks = None
        if sys.platform == "linux":  # Elsewhere libraries of the system may mind a fork.
            forks = Forks(_LOADED, configuration.of_server(os.environ), plan.data / "logs" / "services.log")
        supervisor = Supervisor(plan.data, report, on_ready, forks)
        starting, stopped = (
            asyncio.create_task(_start_all(plan, supervisor, report, umask)),
            asyncio.create_task(stop.wait()),
        )
        refused = asyncio.create_task(supervisor.refused())
        refused.add_done_callback(lambda _ended: stop.set())
        try:
            await asyncio.wait({starting, stopped, refused}, return_when=asyncio.FIRST_COMPLETED)
            if not refused.done():
                if not starting.done():
                    raise Stopped
                with published(plan.data, starting.result()):
                    yield starting.result()
            if refused.done():
                raise CannotLaunch(refused.result())
        finally:
            for task in (starting, stopped, refused):
                task.cancel()
            await asyncio.gather(starting, stopped, refused, return_exceptions=True)
            await supervisor.stop()


async def _start_all(plan: Plan, supervisor: Supervisor, report: Callable[[str], None], umask: int) -> dict[str, Any]:
    if plan.port and listens(plan.port):
        raise CannotLaunch(f"port {plan.port} is taken; choose another: runwire up --port 0 (any), make run PORT=8081")
    port = plan.port or free_port()
    passwords = embedded_nats.passwords_of(plan.data)
    nats, nats_port = await start_nats(plan, supervisor, report)

    def login(user: str) -> dict[str, str]:
        return embedded_nats.client_environment(nats_port, user, passwords)

    env = {"RUNWIRE_PORT": str(port), "RUNWIRE_TRUST_TOOLS": str(plan.trust_tools).lower(), "PYTHONUNBUFFERED": "1"}
    store = await _offer_s3(plan.data, supervisor)
    counts = {"planner": plan.planners, "tool_runner": plan.tool_runners}
    workers = [(service, f"{service}-{n}") for service, count in counts.items() for n in range(1, count + 1)]
    gateway = configuration.of_service("gateway", os.environ) | env | login("gateway") | {"RUNWIRE_HOST": "127.0.0.1"}
    tools = {**configuration.of_tools(os.environ), **env, **login(LOCAL_TOOLS)}
    tables = {**configuration.of_service("tables", os.environ), **env, **login(LOCAL_TOOLS)}
    tables["RUNWIRE_DATA_DIR"] = str(plan.data)
    provisioner = {**configuration.of_service(PROVISIONER, os.environ), **env, **login(PROVISIONER)}
    services = [_service(service, name, {**env, **login(service)}) for service, name in workers]
    services.append(_service("artifact_store", "artifact_store", {**env, **store, **login("artifact_store")}))
    await asyncio.gather(
        supervisor.run_once(Child(PROVISIONER, ["services.messaging.provisioner"], provisioner, is_forked=True)),
        *map(supervisor.start, services),
        supervisor.start(Child("gateway", ["services.gateway"], gateway, lambda: is_ready(port), is_forked=True)),
        supervisor.start(Child("tables", ["services.tables"], tables, is_forked=True)),
        *(supervisor.start(_served(files, tools, umask)) for files in plan.tools),
    )
    await _await_tools(port, sum(map(len, plan.tools)))
    health_ports = [port, *(int(child.env["RUNWIRE_HEALTH_PORT"]) for child in services)]
    supervisor.beside(_restart_after_full_disk(supervisor, nats, plan.data, health_ports))
    return {
        "url": f"http://127.0.0.1:{port}",
        "nats_url": embedded_nats.url_of(nats_port),
        "nats_port": nats_port,
        "sync": plan.sync,
    }


@contextlib.contextmanager
def _port_lock() -> Iterator[int]:
    """Open the file that the launchers of this user lock while one chooses NATS' port. Raises CannotLaunch."""
    file = Path(tempfile.gettempdir()) / f"runwire-{os.getuid()}.lock"
    try:
        # The folder is everybody's: no link of somebody else is followed.
        descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CannotLaunch(f"{file} cannot be used: {error.strerror}; remove it, or set TMPDIR") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def start_nats(plan: Plan, supervisor: Supervisor, report: Callable[[str], None]) -> tuple[Child, int]:
    """Start nats-server, on the port of the last start if that is free. Returns it and its port."""
    last_port = embedded_nats.last_port(plan.data)
    with _port_lock() as lock:
        # Launchers that start at once prefer the same port: one finds it free when the other one listens or has left.
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        port = free_port(last_port)
        if port != last_port and (plan.data / "jetstream").exists():
            report(
                f"another program has NATS' port {last_port}, so NATS is on {port} now: tools and listeners that "
                f"have the old address do not reach it"
            )
        command = embedded_nats.configure(plan.data, port, plan.sync)
        nats = Child("nats-server", command, configuration.of_server(os.environ), lambda: listens(port))
        await supervisor.start(nats)
    return nats, port


async def _offer_s3(data: Path, supervisor: Supervisor) -> dict[str, str]:
    """Have the embedded S3 server started by its first request; return the artifact store's settings for it."""
    folder, keys = data / "s3", embedded_nats.keys_of(data / "s3_keys.json")
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    embedded_nats.prepare(folder)
    command = embedded_nats.rclone_command(folder, port)
    environment = {**configuration.of_server(os.environ), **embedded_nats.rclone_environment(keys)}
    await supervisor.start(Child("s3", command, environment, listening=listening))
    return dict(embedded_nats.store_environment(keys, port))


def _service(service: str, name: str, env: dict[str, str]) -> Child:
    health = free_port()
    own = {**configuration.of_service(service, os.environ), **env, "RUNWIRE_HEALTH_PORT": str(health)}
    return Child(name, [f"services.{service}"], own, lambda: is_ready(health), is_forked=True)


async def _restart_after_full_disk(supervisor: Supervisor, nats: Child, data: Path, health_ports: list[int]) -> None:
    """Restart nats-server where services report twice that it does not store although its disk has room.

    After a full disk it would refuse writes until then.
    """
    while True:
        failures = 0
        while failures < 2:  # noqa: PLR2004, one report may be the last one before it stores
            await asyncio.sleep(_CHECK_INTERVAL_S)
            has_room = shutil.disk_usage(data / "jetstream").free >= _MIN_FREE_BYTES
            answers = await asyncio.gather(*(asyncio.to_thread(answer, port, "/readyz") for port in health_ports))
            failures = failures + 1 if has_room and any(NOT_STORED.encode() in each for each in answers) else 0
        await supervisor.restart(nats, "does not store although its disk has space")
        await asyncio.sleep(_SETTLING_S)


async def _await_tools(port: int, files: int) -> None:
    """Wait until those for tables are offered, and as many others as files are served: the first question finds them.

    Not for long: a tool may wait to be accepted. And not behind a gateway that asks for a key.
    """
    deadline = time.monotonic() + _OFFERED_TIMEOUT_S
    while time.monotonic() < deadline:
        head, _, body = (await asyncio.to_thread(answer, port, "/v1/tools", 1.0)).partition(b"\r\n\r\n")
        if head and b" 200 " not in head[:64]:
            return
        with contextlib.suppress(ValueError, KeyError, TypeError):
            of_files = ["tables" not in tool.get("tags", ()) for tool in json.loads(body)["tools"]]
            if sum(of_files) >= files and not all(of_files):
                return
        await asyncio.sleep(0.05)


def _served(files: list[Path], env: dict[str, str], umask: int) -> Child:
    command = module_command("runwire", "serve", *map(str, files))
    return Child(
        f"tools-{files[0].stem if len(files) == 1 else files[0].parent.name}",
        command,
        env,
        refusal_code=_TOOLS_REFUSED_EXIT_CODE,
        umask=umask,
    )


def stop_event() -> asyncio.Event:
    """An event that Ctrl-C or SIGTERM sets."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    return event


def example_tools() -> list[Path]:
    """The tools that ship with a clone of the repository.

    Raises CannotLaunch outside one, and where the libraries of the services are missing.
    """
    clone = Path(__file__).parents[2]
    files = [clone / "examples" / "demo" / f"{name}.py" for name in ("calculator", "report", "search", "table")]
    if not all(file.is_file() for file in files):
        raise CannotLaunch(
            "`runwire up` needs the services, which this installation does not hold: clone the repository and call "
            "`make run` there, or `docker compose up -d --wait`"
        )
    if importlib.util.find_spec("structlog") is None:
        raise CannotLaunch(
            f"the libraries of the services are not installed here: call `make run` in {clone}, or "
            f"pip install -e '{clone}[all]'"
        )
    return files
