"""Keep processes running.

Rule 1: a process that exits is restarted, at once the first times and then after growing pauses; the others continue.
Its first, second, fourth and eighth exit, and so on, are reported with the last line that it wrote.
Rule 2: a process that exits several times before it was ever ready will not become ready: waiting for it raises an
error with the reason.
Rule 3: a process whose first start ends because of its configuration is not restarted. `refused` names the reason.
Rule 4: a process is only restarted when it ends. A service whose event loop stands still ends itself.
Rule 5: a process with a socket is started when somebody connects, who waits in the socket's queue meanwhile.
"""

import asyncio
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.wire.operation import EXIT_WRONG_SETTINGS
from runwire.local.forks import Forked, Forks, die_with_parent

_IMMEDIATE_RESTARTS = 3
"""Restarts without a pause: the reason for an exit is mostly over, and work waits."""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.3, 10.0
_STABLE_S = 5.0
"""A process that ran that long has worked: its next restart has no pause again."""
_STOP_TIMEOUT_S = 8.0
_RESTART_TIMEOUT_S = 1.5
"""Seconds between SIGTERM and SIGKILL for a process that is to be restarted."""
_READY_TIMEOUT_S = 60.0
_MAX_EXITS_BEFORE_READY = 3
"""One may be an accident, such as a port that another program took meanwhile."""
_LOG_TAIL_BYTES = 4096
_MAX_REPORTED_CHARACTERS = 500
_UVICORN_LAST_LINE = "Application startup failed"
"""What uvicorn prints after the reason."""


class CannotLaunch(Exception):
    """Something on this machine prevents the start; the text says what, and what to do."""


@dataclass
class Child:
    """One process to keep running, with `env` as its whole environment.

    `ready` is polled until the process is ready; None: it is ready at once. `refusal_code`: the exit code that means
    that its configuration is wrong. `is_forked`: it is forked where the supervisor can, and `argv` is a module of ours
    with its arguments. `umask`: -1: that of the supervisor. `listening`: its socket, handed to it as systemd does
    (sd_listen_fds(3)).
    """

    name: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    ready: Callable[[], bool] | None = None
    refusal_code: int = EXIT_WRONG_SETTINGS
    is_forked: bool = False
    umask: int = -1
    listening: socket.socket | None = None
    process: asyncio.subprocess.Process | Forked | None = None
    restarts: int = 0
    log_start: int = 0
    is_killed: bool = False

    def kill(self) -> None:
        """End the process at once. It is started again without a report: the caller says so."""
        if self.process is not None and self.process.returncode is None:
            self.is_killed = True
            self.process.kill()


class Supervisor:
    """Keeps child processes running until it is stopped. Their output goes to `<data>/logs/<name>.log`."""

    def __init__(
        self,
        data: Path,
        report: Callable[[str], None],
        on_ready: Callable[[Child], None] = lambda _: None,
        forks: Forks | None = None,
    ) -> None:
        self._data = data
        self._forks = forks
        self._report = report
        self._on_ready = on_ready
        self._children: list[Child] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def refused(self) -> str:
        """Wait for a process whose configuration is wrong. Returns which it is and what is wrong."""
        return await asyncio.shield(self._refused)

    async def start(self, child: Child) -> None:
        """Start a child and wait until it is ready.

        Raises CannotLaunch when it is not ready within a minute, or exits again and again.
        """
        log = self.log_of(child.name)
        child.log_start = log.stat().st_size if log.exists() else 0
        self._children.append(child)
        task = self.beside(self._keep(child))
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while child.listening is None and (
            child.process is None or (child.ready is not None and not await asyncio.to_thread(child.ready))
        ):
            if task.done() or time.monotonic() > deadline or child.restarts >= _MAX_EXITS_BEFORE_READY:
                raise CannotLaunch(f"{child.name} did not become ready{self._last_line(child)} (see {log})")
            await asyncio.sleep(0.05)
        self._on_ready(child)

    async def run_once(self, child: Child) -> None:
        """Run a child to its end. Raises CannotLaunch when it fails."""
        log_file = self.log_of(child.name)
        child.log_start = log_file.stat().st_size if log_file.exists() else 0
        try:
            child.process = await self._spawn(child, log_file)
        except ConnectionError as error:
            raise CannotLaunch(f"{child.name} cannot start: {error}") from error
        self._children.append(child)
        if code := await child.process.wait():
            reason = f"{child.name} {_describe_exit(code)}{self._last_line(child)}"
            raise CannotLaunch(f"{reason} (see {log_file})")

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside the children until they are stopped."""
        self._tasks.append(asyncio.create_task(work))
        return self._tasks[-1]

    async def restart(self, child: Child, reason: str) -> None:
        """End a child, so that it is started again."""
        self._report(f"{child.name} {reason}; ending it, to start it again (see {self.log_of(child.name)})")
        await _end(child, _RESTART_TIMEOUT_S)

    def log_of(self, name: str) -> Path:
        """The file for a child's output."""
        return self._data / "logs" / f"{name}.log"

    async def _keep(self, child: Child) -> None:
        exits = 0  # since it was last stable
        while not self._stopping:
            if child.listening is not None:
                await _connected(child.listening)
            started_at = time.monotonic()
            try:
                child.process = await self._spawn(child, self.log_of(child.name))
                code = await child.process.wait()
            except ConnectionError as error:
                with self.log_of(child.name).open("a") as log:
                    log.write(f"{error}\n")
                code = 1
            if self._stopping:
                return
            if code == child.refusal_code and not child.restarts:
                if not self._refused.done():
                    self._refused.set_result(f"{child.name} cannot start{self._last_line(child)}")
                return
            exits = 1 if time.monotonic() - started_at > _STABLE_S else exits + 1
            child.restarts += 1
            if child.restarts.bit_count() == 1 and not child.is_killed:
                count = f", {child.restarts} times by now" if child.restarts > 1 else ""
                # The last line of a process that was killed has nothing to do with its end.
                line = "" if -code in {signal.SIGKILL, signal.SIGTERM} else self._last_line(child)
                log_file = self.log_of(child.name)
                self._report(f"{child.name} {_describe_exit(code)}{count}{line}; starting it again (see {log_file})")
            child.is_killed = False
            await asyncio.sleep(restart_pause_s(exits))

    def _last_line(self, child: Child) -> str:
        """The last line that the child has written since its first start here."""
        with self.log_of(child.name).open("rb") as log:
            log.seek(max(child.log_start, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = [
                line
                for read in log.read().decode(errors="replace").splitlines()
                if (line := read.strip()) and _UVICORN_LAST_LINE not in line
            ]
        return f": {lines[-1][:_MAX_REPORTED_CHARACTERS]}" if lines else ""

    async def stop(self) -> None:
        """Stop all children, the last started first; one that does not stop in time is killed."""
        self._stopping = True
        for child in reversed(self._children):
            await _end(child, _STOP_TIMEOUT_S)
            if child.listening is not None:
                child.listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._forks is not None:
            await self._forks.close()

    async def _spawn(self, child: Child, log: Path) -> asyncio.subprocess.Process | Forked:
        if child.is_forked and self._forks is not None:
            return await self._forks.spawn(child.argv, child.env, log)
        argv = module_command(*child.argv) if child.is_forked else child.argv
        if child.listening is not None:
            argv = ["/bin/sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&0 </dev/null', child.name, *argv]
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *argv,
                env=child.env,
                stdin=asyncio.subprocess.DEVNULL if child.listening is None else child.listening.fileno(),
                stdout=output,
                stderr=output,
                # Ctrl-C in the terminal reaches the launcher alone, which then stops its children in order.
                start_new_session=True,
                umask=child.umask,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )


def module_command(name: str, *arguments: str) -> list[str]:
    """The command of a module of ours. -P: a user's own `services` folder must not shadow it."""
    return [sys.executable, "-P", "-m", name, *arguments]


async def _connected(listening: socket.socket) -> None:
    """Wait until a connection waits to be accepted."""
    waits, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(listening, waits.set)
    try:
        await waits.wait()
    finally:
        loop.remove_reader(listening)


async def _end(child: Child, timeout_s: float) -> None:
    """End a process by SIGTERM, and by SIGKILL after the timeout."""
    process = child.process
    if process is not None and process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            process.kill()
            await process.wait()


def restart_pause_s(exits: int) -> float:
    """Seconds before a restart, after this number of exits since the child was last stable."""
    if exits <= _IMMEDIATE_RESTARTS:
        return 0.0
    longest = min(_FIRST_PAUSE_S * 2.0 ** min(exits - _IMMEDIATE_RESTARTS - 1, 16), _MAX_PAUSE_S)
    return longest * random.uniform(0.7, 1.3)  # noqa: S311, a spread, not a secret


def _describe_exit(code: int) -> str:
    is_signal = -code in set(signal.Signals)
    return f"was ended by {signal.Signals(-code).name}" if is_signal else f"ended with code {code}"
