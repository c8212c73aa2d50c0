"""Run costly checks in a process of their own, one after another: a thread would take its time from the event loop.

Rule 1: the process starts with the first such check, and ends with the one that started it.
Rule 2: the kernel ends it when one check takes more than `CPU_LIMIT_S` of CPU time. The next check starts another.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

T = TypeVar("T")

CPU_LIMIT_S = 2.0
_PARENT_CHECK_S = 1.0

_turn = threading.Lock()
_process: ProcessPoolExecutor | None = None


class CheckTooCostly(Exception):
    """A check was ended, since it took too much CPU time."""


def run_check(check: Callable[[], T]) -> T:
    """Return what a check returns, or raise what it raises. Call it in a thread, which waits.

    `check`: a `partial` of a module's function; its arguments and what it returns or raises can be pickled.

    Raises CheckTooCostly.
    """
    global _process  # noqa: PLW0603, one per process
    with _turn:
        if _process is None:
            _process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (os.getpid(),))
        try:
            return _process.submit(_limited, check).result()
        except BrokenProcessPool as error:
            _process = None
            raise CheckTooCostly(f"it took more than {CPU_LIMIT_S:g} s of CPU time") from error


def _begin(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_S)
        os._exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal sends it to all; the service decides.
    threading.Thread(target=watch, daemon=True).start()


def _limited(check: Callable[[], T]) -> T:
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
    try:
        return check()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
