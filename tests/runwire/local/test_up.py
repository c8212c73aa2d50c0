"""Access to what `runwire up` starts: its NATS server, the environments of its processes, `endpoints.json`."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from runwire.identities import changed, read
from runwire.local import data_folder, embedded_nats, launch
from runwire.local.supervisor import Supervisor
from tests.support.nats_server import admits
from tests.support.needs import free_port, needs_program
from tests.support.server_process import ends_with_block
from tests.support.up import below, environment, running
from tests.support.waiting import wait_until_blocking

RUNWIRE = [sys.executable, "-P", "-m", "runwire"]
_READY_S = 90
TOOL = "from runwire import tool\n\n@tool(desc='Nothing')\ndef {name}() -> str:\n    return 'x'\n"
CANARIES = {
    "OPENAI_API_KEY": "canary-provider",
    "AWS_SECRET_ACCESS_KEY": "canary-cloud",
    "RUNWIRE_MODEL_API_KEY": "canary-model",
    "RUNWIRE_API_KEY": "canary-caller",
    "RUNWIRE_NATS_USER": "canary-user",
    "RUNWIRE_NATS_PASSWORD": "canary-elsewhere",
    "RUNWIRE_S3_REGION": "canary-region",
    "DATABASE_URL": "canary-database",
}
"""What a shell may hold. The login is that of another server: the embedded one has its own."""

pytestmark = pytest.mark.timeout(180)


@dataclass
class Up:
    """A launcher in a process of its own."""

    data: Path
    process: subprocess.Popen[bytes]

    @property
    def port(self) -> int:
        """Of the NATS server."""
        return int(data_folder.remembered(self.data)["nats_port"])

    @property
    def said(self) -> str:
        return (self.data / "up.log").read_text()

    def children(self) -> dict[str, int]:
        """Process ids by the name of the program or module, of what it forks and starts and of what is forked there."""
        found: dict[str, int] = {}
        for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if command[0] and parent in {self.process.pid, found.get("forks")}:
                module = command[3] if command[1:3] == ["-P", "-m"] else Path(command[0]).name
                found[module.rpartition(".")[2]] = int(folder.name)
        return found


@contextmanager
def started(data: Path, *arguments: str, **settings: str) -> Iterator[Up]:
    """`runwire up`, with whatever else is in its environment."""
    needs_program("nats-server")
    data.mkdir(exist_ok=True)
    env = environment(data) | {"RUNWIRE_MODEL": "builtin/rehearsal"} | settings
    with (data / "up.log").open("wb") as log:
        command = [*RUNWIRE, "up", "--port", "0", *arguments]
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=data)
    try:
        yield Up(data, process)
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()


def ready(up: Up) -> Up:
    """Return once everything runs."""

    def is_ready() -> bool:
        assert up.process.poll() is None, up.said
        return bool(data_folder.remembered(up.data))

    wait_until_blocking(is_ready, timeout=_READY_S, what="runwire up")
    return up


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One for all tests here, with a tool of its own and a shell full of secrets. Killed, it leaves nothing behind."""
    data = tmp_path_factory.mktemp("up")
    (data / "own.py").write_text(TOOL.format(name="own"))
    with started(data, "--tools", str(data / "own.py"), **CANARIES) as launched:
        yield ready(launched)
        children = launched.children()
        launched.process.kill()
        launched.process.wait()
        assert (data / "endpoints.json").exists()
        assert data_folder.remembered(data) == {}
        wait_until_blocking(lambda: not any(map(_lives, children.values())), timeout=60, what="its processes ended too")


@contextmanager
def serving(name: str, folder: Path, **settings: str) -> Iterator[Path]:
    """`runwire serve` of a tool in a folder, which is the data folder too; yields its log."""
    (folder / f"{name}.py").write_text(TOOL.format(name=name))
    command, env = [*RUNWIRE, "serve", str(folder / f"{name}.py")], environment(folder) | settings
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    with ends_with_block(process):
        yield folder / f"{name}.log"


def tools_of(up: Up) -> set[str]:
    """What the gateway lists, without those of the tables service."""
    found = httpx.get(f"{data_folder.remembered(up.data)['url']}/v1/tools", timeout=20).json()
    return {tool["name"] for tool in found["tools"] if "tables" not in tool["tags"]}


def test_nobody_connects_without_the_login_of_the_folder(up: Up, tmp_path: Path) -> None:
    """Not without one, and not with that of another folder or of the shell."""
    with changed(tmp_path, any_tool=True) as other:
        pass
    for user, password in read(up.data).passwords.items():
        assert admits(up.port, user, password), user
        assert not admits(up.port, user, other.passwords[user]), user
    assert not admits(up.port)
    assert not admits(up.port, "canary-user", "canary-elsewhere")


def test_a_tool_of_another_platform_does_not_appear(up: Up, tmp_path: Path) -> None:
    """It is refused, and logs it; a tool served from the same folder appears, with no setting but the folder."""
    address = {"RUNWIRE_NATS_URL": f"nats://127.0.0.1:{up.port}"}
    with serving("stranger", tmp_path, **address) as log, serving("guest", up.data):
        wait_until_blocking(lambda: "Authorization Violation" in log.read_text(), timeout=60, what="it is refused")
        wait_until_blocking(lambda: tools_of(up) == {"own", "guest"}, timeout=60, what="both of the folder are there")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_each_process_has_the_secrets_that_it_needs_and_no_others(up: Up) -> None:
    """As another process of the same user can read them: in the memory of what is forked, else in its environment."""
    keys = json.loads((up.data / "s3_keys.json").read_text())
    secrets = {**CANARIES, **keys, **read(up.data).passwords}
    assert "rclone" not in up.children(), "the S3 server waits for the first artifact"
    httpx.post(f"{data_folder.remembered(up.data)['url']}/v1/artifacts", content=b"bytes").raise_for_status()
    children = up.children()
    services = {"planner", "tool_runner", "artifact_store", "gateway"}
    forked = {*services, "tables", "forks"}
    assert children.keys() == {*forked, "nats-server", "rclone", "runwire"}
    holders: dict[str, set[str]] = {secret: set() for secret in secrets}
    for name, pid in children.items():
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        for secret in {*held(secrets, environment), *(in_memory(pid, secrets) if name in forked else ())}:
            holders[secret].add(name)
    assert {secret: names for secret, names in holders.items() if names} == {
        "OPENAI_API_KEY": {"planner"},
        "AWS_SECRET_ACCESS_KEY": {"planner"},
        "RUNWIRE_MODEL_API_KEY": {"planner"},
        "RUNWIRE_S3_REGION": {"artifact_store"},
        "DATABASE_URL": {"planner", "runwire"},
        **{key: {"artifact_store", "rclone"} for key in keys},
        **{name: {name} for name in services},
        "local": {"runwire", "tables"},
    }


def held(secrets: dict[str, str], text: bytes) -> set[str]:
    """Names of the secrets that stand in the text."""
    return {name for name, secret in secrets.items() if secret.encode() in text}


def in_memory(pid: int, secrets: dict[str, str]) -> set[str]:
    """Names of the secrets that stand anywhere in what the process has written."""
    found = set()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, mode = line.split()[:2]
            first, last = (int(each, 16) for each in place.split("-"))
            if mode.startswith("rw"):
                memory.seek(first)
                found |= held(secrets, memory.read(last - first))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="services are forked there")
def test_what_forks_the_services_is_started_again_with_them(up: Up) -> None:
    """It has one thread: whatever another one held would be held for ever in a fork."""
    before = up.children()
    assert len(list(Path(f"/proc/{before['forks']}/task").iterdir())) == 1
    os.kill(before["forks"], signal.SIGKILL)

    def is_back() -> bool:
        after = up.children()
        return after.keys() - {"rclone"} == before.keys() - {"rclone"} and after["forks"] != before["forks"]

    wait_until_blocking(is_back, timeout=60, what="all are back")
    after = up.children()
    assert {name for name in after if after[name] == before[name]} - {"rclone"} == {"nats-server", "runwire"}
    assert not any(_lives(before[name]) for name in after if after[name] != before[name])
    port = urlsplit(data_folder.remembered(up.data)["url"]).port or 0
    wait_until_blocking(lambda: launch.is_ready(port), timeout=60, what="the gateway is ready")
    assert tools_of(up) == {"own"}


def test_what_is_written_in_the_data_folder_is_for_its_owner_alone(up: Up) -> None:
    """Also where the folder was there before: what was asked, tables and artifacts are as private as passwords."""
    of_tests = {"up.log", "own.py", "guest.py", "guest.log", "__pycache__"}
    ours = [path for path in up.data.rglob("*") if of_tests.isdisjoint(path.parts)]
    assert {path.name for path in ours} >= {"identities.lock", "lock", "endpoints.json", "gateway.log", "tables.db"}
    assert not [path.name for path in ours if path.exists() and path.stat().st_mode & 0o077]


def test_every_write_is_synced_by_default(up: Up) -> None:
    """Else a power cut may lose some."""
    assert data_folder.remembered(up.data)["sync"] == "always"


@pytest.mark.chaos
def test_the_demo_kills_its_own_planner_and_goes_on(tmp_path: Path) -> None:
    """In the middle of the answer, as one line says; then the whole answer, and nothing to complain about."""
    with started(tmp_path, "--demo", "--kill", "--once") as up:
        assert up.process.wait(_READY_S * 2) == 0, up.said
        before, line, after = up.said.partition("planner-1 was killed here (SIGKILL); the next process goes on\n")
        assert before.endswith("\n"), up.said
        assert line, up.said
        assert "East grew most: its revenue rose" in after
        assert "answer_complete" in after
        assert "starting it again" not in up.said


async def test_launchers_that_start_at_once_have_a_port_each(tmp_path: Path) -> None:
    """Both had the same port before."""
    needs_program("nats-server")
    port, folders = free_port(), [tmp_path / "one", tmp_path / "other"]
    for data in folders:
        (data / "logs").mkdir(parents=True)
        embedded_nats.passwords_of(data)
        embedded_nats.configure(data, port, "always")
    supervisors = [Supervisor(data, print) for data in folders]
    try:
        started = await asyncio.gather(
            *(
                launch.start_nats(launch.Plan(each, 0, []), by, print)
                for each, by in zip(folders, supervisors, strict=True)
            )
        )
        ports = [chosen for _, chosen in started]
        assert port in ports
        assert len(set(ports)) == len(ports)
        assert not any(child.restarts for child, _ in started)
    finally:
        await asyncio.gather(*(each.stop() for each in supervisors))


def test_the_data_folder_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    """Artifacts and logs in it have the permissions that their writers choose."""
    with launch.locked(tmp_path / "data"):
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_launcher_leaves_running_is_found() -> None:
    """Also what its children have started; the next user of its ports is none of it."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as parent:
        wait_until_blocking(lambda: below(parent.pid), what="both run")
        processes = below(parent.pid)
        parent.kill()
        parent.wait()
        assert [key for key in processes if key in running()]
        parent.communicate()
    wait_until_blocking(lambda: not [key for key in processes if key in running()], what="all have ended")


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("setting", "tool", "said"),
    [
        ({"RUNWIRE_LOG_LEVEL": "loud"}, TOOL.format(name="x"), "wrong settings: RUNWIRE_LOG_LEVEL: Input should be"),
        ({}, "raise ValueError('no such table')", "tools-own cannot start: ValueError: no such table"),
    ],
    ids=["setting", "tool"],
)
def test_a_wrong_configuration_ends_it_with_the_reason(
    setting: dict[str, str], tool: str, said: str, tmp_path: Path
) -> None:
    """Of a service, or of a file of tools: another start of the process would end the same way."""
    (tmp_path / "own.py").write_text(tool)
    with started(tmp_path, "--tools", str(tmp_path / "own.py"), **setting) as up:
        assert up.process.wait(60) == 1
        assert said in " ".join(up.said.split())
        assert "starting it again" not in up.said
