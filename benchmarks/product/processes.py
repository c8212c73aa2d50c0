"""Processes: start them, and read their CPU time and memory from the kernel (Linux).

CPU time is that of the whole process with all its threads, in nanoseconds: the POSIX clock that `clock_getcpuclockid`
gives for a process id. Memory is the proportional set size (PSS): a page that n processes share counts 1/n in each.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

NAMES = ("planner", "tool_runner", "gateway", "artifact_store", "nats-server", "tool", "s3", "launcher")
"""The processes of `runwire up`; what else it starts is `other`."""
_ROOT = Path(__file__).resolve().parents[2]
_MODULE = re.compile(r"services\.(\w+)(?:\.\w+)*")
_PSS = re.compile(r"^Pss: +(\d+) kB$", re.MULTILINE)


def family(launcher: int) -> dict[int, str]:
    """The launcher and all its descendants: process id → name."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # It has ended meanwhile.
                continue
    found = {launcher: "launcher"}
    while fresh := {pid for pid, parent in parents.items() if parent in found} - found.keys():
        found |= {pid: _name(pid) for pid in fresh}
    return found


def _name(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return "other"
    program = os.path.basename(words[0])  # noqa: PTH119, it need not be a path
    if program in {"nats-server", "rclone"}:
        return "nats-server" if program == "nats-server" else "s3"
    service = next((found[1] for word in words if (found := _MODULE.fullmatch(word))), None)
    name = service or ("tool" if "serve" in words else "other")
    return name if name in NAMES else "other"


def cpu_s(pids: dict[int, str]) -> dict[str, float]:
    """Seconds of CPU that processes have used, by name. One that has ended counts no more."""
    used = dict.fromkeys(pids.values(), 0.0)
    for pid, name in pids.items():
        try:
            used[name] += time.clock_gettime_ns((~pid << 3) | 2) / 1e9
        except OSError:
            continue
    return used


def memory_mb(pids: dict[int, str]) -> dict[str, float]:
    """Megabytes (10^6 bytes, PSS), by name."""
    used = dict.fromkeys(pids.values(), 0.0)
    for pid, name in pids.items():
        try:
            used[name] += int(_PSS.findall(Path(f"/proc/{pid}/smaps_rollup").read_text())[0]) * 1024 / 1e6
        except OSError:
            continue
    return used


@contextmanager
def running(command: Sequence[str], log: Path, env: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a session of its own, from the checkout's folder; at the end it gets SIGTERM."""
    with log.open("wb") as out:
        started = subprocess.Popen(
            command, cwd=_ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
