"""`runwire up` as a process: services, nats-server and the demo model, all of them started by the product itself."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from runwire.local import launch

from .needs import needs_program
from .server_process import ends_with_block
from .waiting import wait_until_blocking

ROOT = Path(__file__).parents[2]
UP_S = 90


@contextlib.contextmanager
def running_up(data: Path, *arguments: str, **more: str) -> Iterator[None]:
    """Start it with this data folder, arguments and more of an environment; return once it says where it is."""
    needs_program("nats-server")
    env = environment(data) | {
        "RUNWIRE_MODEL": "builtin/rehearsal",
        "RUNWIRE_SYNC": "1s",
        "RUNWIRE_OUTBOX": str(data / "outbox"),
        "RUNWIRE_AGENTS_FILE": str(ROOT / "examples" / "background" / "agents.toml"),
        **more,
    }
    log = (data / "up.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "runwire", "up", "--port", "0", *arguments],
        env=env,
        stdout=log,
        stderr=log,
        cwd=data,
    )
    with log, ends_with_block(process):
        _wait_for_endpoints(data, process)
        yield
        processes = below(process.pid)
    assert process.returncode == 0, (data / "up.log").read_text()
    # Not by its ports: another launcher may have them by now.
    wait_until_blocking(lambda: processes.keys().isdisjoint(running()), what=f"all have ended: {processes}")


def running() -> dict[tuple[int, str], tuple[int, str]]:
    """All processes by their ids and starts, each with its parent and command; none where there is no /proc."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent, *rest = (folder / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                command = (folder / "cmdline").read_text().replace("\0", " ")
                found[int(folder.name), rest[17]] = int(parent), command
    return found


def below(pid: int) -> dict[tuple[int, str], str]:
    """What a process has started, and what that has: ids and starts, and the command of each."""
    every, found = running(), dict[tuple[int, str], str]()
    while new := {
        key: at for key, (of, at) in every.items() if of in {pid, *(each for each, _ in found)} and key not in found
    }:
        found |= new
    return found


def environment(data: Path) -> dict[str, str]:
    """Of a command that uses a data folder."""
    return {**os.environ, "RUNWIRE_DATA_DIR": str(data), "PYTHONPATH": str(ROOT)}


def _wait_for_endpoints(data: Path, process: subprocess.Popen[bytes]) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, (data / "up.log").read_text()
        return bool(launch.remembered(data))

    wait_until_blocking(is_ready, timeout=UP_S, what="runwire up")
