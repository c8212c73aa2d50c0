"""Processes that tests may kill, forked from one that has imported what they need: 0.5 to 1.5 s of a processor each.

What a process does at its import, and how it is found by `python -m`, is tested with processes that are started anew.
"""

import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "tests.planner.dying_planner",
        *(f"services.{name}.__main__" for name in ("planner", "tool_runner", "gateway", "artifact_store")),
        "runwire.serving",
        "runwire.cli.app",
        *(f"runwire.cli.commands.{name}" for name in ("approvals", "plans", "runs", "schedules", "sessions", "tools")),
    ]
)
_PR_SET_PDEATHSIG = 1


class Forked:
    """A process that runs a function now. `target`: `module:function`; the process imports it.

    `log`: the file to which it writes, and `folder`: in which it runs; None: those of the tests.
    """

    def __init__(
        self,
        target: str,
        *args: Any,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        folder: Path | None = None,
        **kwargs: Any,
    ) -> None:
        given = (target, dict(environment or {}), log, folder, args, kwargs)
        self._lock = threading.Lock()
        self._process = _FORKS.Process(target=_run, args=given, daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def poll(self) -> int | None:
        """Return its exit code; None: it runs."""
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return its exit code once it has ended; None: it has not, in time."""
        with self._lock:  # Two threads would read the exit code from one pipe.
            self._process.join(timeout_s)
            return self._process.exitcode


def _run(
    target: str,
    environment: Mapping[str, str],
    log: Path | None,
    folder: Path | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    if sys.platform == "linux":
        die_with_parent()
    os.environ.update(environment)
    if folder is not None:
        os.chdir(folder)
    if log is not None:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    module, _, function = target.partition(":")
    getattr(importlib.import_module(module), function)(*args, **kwargs)


def die_with_parent() -> None:
    """Have the kernel end this child when its parent ends: else a killed test run leaves orphans."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
