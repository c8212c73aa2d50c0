"""Fork the services of `runwire up` from one process that has loaded their modules.

They share the memory of what is loaded, and a killed service is at work again without loading it: see
docs/benchmarks.md for both. Processes with code of other people, such as tools, are not forked: they see none of this.

Rule 1: the loading process has one thread, opens nothing but its channel and knows no secret. So a fork of it is as
good as a new process.
Rule 2: it ends with the launcher, and what it forked ends with it.
Rule 3: the launcher starts it again when it is gone, at the next fork.
"""

import asyncio
import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LENGTH_BYTES = 4
"""Of a request: its length comes first."""


class Forked:
    """A process that was forked, as `asyncio.subprocess.Process` shows one that was started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        """Its exit code, -N after signal N; None: it runs."""
        return self.ended.result() if self.ended.done() else None

    async def wait(self) -> int:
        """Wait for its end. Returns the exit code."""
        return await asyncio.shield(self.ended)

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Forks:
    """Starts processes by forking one that has loaded `modules`. `env` is its environment; its output goes to `log`."""

    def __init__(self, modules: list[str], env: Mapping[str, str], log: Path) -> None:
        self._modules, self._env, self._log = modules, env, log
        self._lock = asyncio.Lock()
        self._channel: asyncio.StreamWriter
        self._started: asyncio.Queue[int] = asyncio.Queue()
        self._running: dict[int, Forked] = {}
        self._reading: asyncio.Task[None] | None = None

    async def spawn(self, arguments: list[str], env: Mapping[str, str], log: Path) -> Forked:
        """Fork a process that runs `arguments`: a module and what stands behind it on a command line.

        `env` is its whole environment; its output goes to the end of the file `log`. Raises ConnectionError when the
        loading process ended meanwhile.
        """
        async with self._lock:
            if self._reading is None or self._reading.done():
                await self._load()
            request = json.dumps({"arguments": arguments, "env": dict(env), "log": str(log)}).encode()
            self._channel.write(len(request).to_bytes(_LENGTH_BYTES) + request)
            pid = await self._started.get()
            if not pid:
                raise ConnectionError(f"the process that loads the services has ended (see {self._log})")
            return self._running[pid]

    async def close(self) -> None:
        """End the loading process, after what it forked."""
        if self._reading is not None:
            self._channel.close()
            await self._reading

    async def _load(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs, self._log.open("ab") as log:
            channel = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", __name__, str(channel), *self._modules),
                env={**self._env, "PYTHONUNBUFFERED": "1"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[channel],
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        reader, self._channel = await asyncio.open_unix_connection(sock=ours)
        self._started = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(reader, process))

    async def _read(self, reader: asyncio.StreamReader, process: asyncio.subprocess.Process) -> None:
        while line := await reader.readline():
            pid, code = json.loads(line)
            if code is None:
                self._running[pid] = Forked(pid)
                self._started.put_nowait(pid)
            else:
                self._running.pop(pid).ended.set_result(code)
        await process.wait()
        self._started.put_nowait(0)
        for lost in self._running.values():  # The kernel asked them to end; their successors need their ports now.
            lost.kill()
            lost.ended.set_result(-signal.SIGKILL)
        self._running.clear()


def die_with_parent() -> None:
    """Have the kernel end this process when its parent is killed, so that no orphan holds the ports. Linux only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _next_fork(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each request on the channel. Returns in the fork, with its request; or None when the launcher is gone.

    The fork alone reads the request, for the secrets in its environment.
    """

    def report(pid: int, code: int | None) -> None:
        with contextlib.suppress(OSError):
            channel.sendall(json.dumps([pid, code]).encode() + b"\n")

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                report(ended[0], os.waitstatus_to_exitcode(ended[1]))

    signal.signal(signal.SIGCHLD, reap)
    while channel.recv(1, socket.MSG_PEEK):
        # So that the end of a fork is reported after its start, however soon it ends.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        reading, read = os.pipe()
        if not (pid := os.fork()):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            length = int.from_bytes(channel.recv(_LENGTH_BYTES, socket.MSG_WAITALL))
            request = channel.recv(length, socket.MSG_WAITALL)
            os.close(reading)
            os.close(read)
            return dict(json.loads(request))
        os.close(read)
        os.read(reading, 1)  # Nothing comes: it is closed when the fork has read its request, or has ended.
        os.close(reading)
        report(pid, None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    return None


def _become(request: Mapping[str, Any]) -> None:
    """Make this fork what a new process with the request's environment, output and arguments would be."""
    sys.argv = list(request["arguments"])
    _show_title(*sys.argv)
    os.setsid()
    die_with_parent()
    os.environ.clear()
    os.environ.update(request["env"])
    with Path(request["log"]).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _show_title(*arguments: str) -> None:
    """Show this process in lists of processes as if it had been started with the module and the arguments.

    They are written over the command line, which is longer. Where it stands in memory: proc_pid_stat(5).
    """
    first, last = map(int, Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[45:47])
    title = "\0".join([sys.executable, "-P", "-m", *arguments]).encode()
    ctypes.memmove(first, title.ljust(last - first, b"\0"), last - first)


def _build(message: type[Any]) -> None:
    """Build a message, and all that are made from it: in each fork it would take 12 MB of its own, and 0.1 s."""
    message.model_rebuild()
    for each in message.__subclasses__():
        _build(each)


def _main() -> None:
    number, *modules = sys.argv[1:]
    _show_title(__spec__.name)
    for module in modules:
        importlib.import_module(module)
    _build(importlib.import_module("contracts.wire.base").Message)  # The launcher does without pydantic.
    for settings in importlib.import_module("services.runtime.settings").BusSettings.__subclasses__():
        with contextlib.suppress(ValueError):  # They are not there; how they are read stays in memory.
            settings()
    gc.collect()
    gc.freeze()  # What is loaded stays: looking at it again would copy its pages into each fork.
    with socket.socket(fileno=int(number)) as channel:
        request = _next_fork(channel)
    if request is not None:
        _become(request)
        importlib.import_module(f"{sys.argv[0]}.__main__").main()


if __name__ == "__main__":
    _main()
