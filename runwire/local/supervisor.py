"""Processes that are kept running.

Rule 1: a child that dies is started again, at once the first times and then after a growing pause, and the others go
on. It is reported at the first, second, fourth, eighth time, with the last line that it wrote.
Rule 2: a child that dies again and again before it was ever ready will not get ready: waiting for it raises an error
with the reason.
"""

import asyncio
import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from runwire.local.liveness import Use, of_service, useless

_AT_ONCE = 3
"""Restarts without a pause: what ended a child is mostly over, and its work waits."""
_PAUSE_S, _MAX_PAUSE_S = 0.3, 10.0
_STEADY_S = 20.0
"""A child that lived that long is restarted at once again."""
_STOP_S = 8.0
_LEAVING_S = 1.5
"""What a child that is of no use gets to end in order."""
_READY_S = 60.0
_HOPELESS = 3
"""Deaths before it was ever ready; one may be an accident, such as a port that somebody took meanwhile."""
_TAIL_BYTES = 4096
_SHOWN = 500
_NO_NEWS = "Application startup failed"
"""What uvicorn says below the reason."""
_PR_SET_PDEATHSIG = 1


class CannotLaunch(Exception):
    """Something on this machine is in the way: it says what, and what to do."""


@dataclass
class Child:
    """One process to keep running, with `env` as its whole environment.

    `ready` is polled after each start; None: ready at once. `health_port` is where a service answers `/livez`. `use`
    says what else to look at until its end, made anew for each start.
    """

    name: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    ready: Callable[[], bool] | None = None
    health_port: int | None = None
    use: Callable[[], Use] | None = None
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    logged_from: int = 0


class Launcher:
    """Keeps children running until it is stopped. Their output goes to `<data>/logs/<name>.log`."""

    def __init__(self, data: Path, report: Callable[[str], None]) -> None:
        self._data = data
        self._report = report
        self._children: list[Child] = []
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    async def start(self, child: Child) -> None:
        """Start a child and wait until it is ready.

        Raises CannotLaunch when it is not within a minute, or dies again and again.
        """
        log = self.log_of(child.name)
        child.logged_from = log.stat().st_size if log.exists() else 0
        self._children.append(child)
        keeper = self._keepers[child.name] = asyncio.create_task(self._keep(child))
        until = time.monotonic() + _READY_S
        while child.process is None or (child.ready is not None and not await asyncio.to_thread(child.ready)):
            if keeper.done() or time.monotonic() > until or child.restarts >= _HOPELESS:
                raise CannotLaunch(f"{child.name} did not get ready{self._last_words(child)} (see {log})")
            await asyncio.sleep(0.05)

    def log_of(self, name: str) -> Path:
        """Where a child's output goes."""
        return self._data / "logs" / f"{name}.log"

    def health_ports(self) -> list[int]:
        """Where the services that were started answer `/readyz`."""
        return [child.health_port for child in self._children if child.health_port]

    async def _keep(self, child: Child) -> None:
        deaths = 0  # since it last ran steadily
        while not self._stopping:
            began = time.monotonic()
            with self.log_of(child.name).open("ab") as log:
                child.process = await _spawn(child, log)
            code = await self._ended(child, child.process)
            if self._stopping:
                return
            deaths = 1 if time.monotonic() - began > _STEADY_S else deaths + 1
            child.restarts += 1
            if child.restarts.bit_count() == 1:
                self._report(self._told(child, code))
            await asyncio.sleep(pause_s(deaths))

    async def _ended(self, child: Child, process: asyncio.subprocess.Process) -> int:
        """Return the exit code once the process has ended; one that is of no use is ended."""
        use = child.use() if child.use is not None else of_service(child.health_port) if child.health_port else None
        watching = asyncio.create_task(self._watch(use, child.name, process)) if use is not None else None
        try:
            return await process.wait()
        finally:
            if watching is not None:
                watching.cancel()

    async def _watch(self, use: Use, name: str, process: asyncio.subprocess.Process) -> None:
        fault = await useless(use)
        if self._stopping:
            return
        self._report(f"{name} {fault}; ending it, to start it again (see {self.log_of(name)})")
        if not use.kill:
            process.terminate()
            await asyncio.sleep(_LEAVING_S)
        process.kill()

    def _told(self, child: Child, code: int) -> str:
        often = f", {child.restarts} times by now" if child.restarts > 1 else ""
        # What somebody else killed has written nothing about it.
        words = "" if -code in {signal.SIGKILL, signal.SIGTERM} else self._last_words(child)
        return f"{child.name} {_ended_how(code)}{often}{words}; starting it again (see {self.log_of(child.name)})"

    def _last_words(self, child: Child) -> str:
        """The last line that the child has written, since it was first started here."""
        with self.log_of(child.name).open("rb") as log:
            log.seek(max(child.logged_from, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = [
                line
                for read in log.read().decode(errors="replace").splitlines()
                if (line := read.strip()) and _NO_NEWS not in line
            ]
        return f": {lines[-1][:_SHOWN]}" if lines else ""

    async def stop(self) -> None:
        """Stop all children, the last started first; one that does not stop in time is killed."""
        self._stopping = True
        for child in reversed(self._children):
            process = child.process
            if process is not None and process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), _STOP_S)
                except TimeoutError:
                    process.kill()
                    await process.wait()
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)


def pause_s(deaths: int) -> float:
    """Seconds before a child is started again that died so many times without having run steadily in between."""
    if deaths <= _AT_ONCE:
        return 0.0
    longest = min(_PAUSE_S * 2.0 ** min(deaths - _AT_ONCE - 1, 16), _MAX_PAUSE_S)
    return longest * random.uniform(0.7, 1.3)  # noqa: S311, a spread, not a secret


def _ended_how(code: int) -> str:
    known = -code in set(signal.Signals)
    return f"was ended by {signal.Signals(-code).name}" if known else f"ended with code {code}"


async def _spawn(child: Child, log: IO[bytes]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *child.argv,
        env=child.env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # Ctrl-C in the terminal reaches the launcher alone, which then stops its children in order.
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def _die_with_parent() -> None:
    """Have the kernel end this child when the launcher is killed, so that no orphan holds the ports."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
