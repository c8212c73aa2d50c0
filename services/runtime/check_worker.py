"""Run costly checks in one worker process, one after another.

In a thread they would hold the interpreter lock, and the event loop would wait.

Rule 1: the worker starts with the first check, and ends with the service, whose end is that of its input.
Rule 2: the kernel ends it when one check takes more than `CPU_LIMIT_S` of CPU time, or `LIMIT_S`. The next check starts
another, and so does one that finds it dead for another reason, once.
"""

import atexit
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar, cast

from services.runtime.settings import environment_without_settings

T = TypeVar("T")

CPU_LIMIT_S, LIMIT_S = 2.0, 60.0
_ENDED_BY_LIMIT = frozenset({-signal.SIGPROF, -signal.SIGALRM})
_turn = threading.Lock()
_worker: "subprocess.Popen[bytes] | None" = None


class CheckTooCostly(Exception):
    """A check took too much CPU time, or ended its process twice."""


def run_check(check: Callable[[], T]) -> T:
    """Return what a check returns, or raise what it raises. Call it in a thread, which waits.

    `check`: a `partial` of a module's function; its arguments and what it returns or raises can be pickled.

    Raises CheckTooCostly.
    """
    work = pickle.dumps(check)
    with _turn:
        for is_last in (False, True):
            worker = _started()
            try:
                _pipe(worker.stdin).write(work)
                _pipe(worker.stdin).flush()
                succeeded, found = pickle.load(_pipe(worker.stdout))  # noqa: S301, from our own process
                break
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                worker.kill()
                worker.communicate()  # It closes the pipes.
                if worker.returncode in _ENDED_BY_LIMIT:
                    raise CheckTooCostly(f"it took more than {CPU_LIMIT_S:g} s of CPU time") from error
                if is_last:
                    raise CheckTooCostly(f"its process ended twice, with {worker.returncode}") from error
    if not succeeded:
        raise found
    return cast("T", found)


def _started() -> "subprocess.Popen[bytes]":
    global _worker  # noqa: PLW0603, one per process
    if _worker is None:
        atexit.register(_end)
    if _worker is None or _worker.poll() is not None:
        _worker = subprocess.Popen(  # noqa: S603, our own module
            [sys.executable, "-P", "-m", __name__],
            env=environment_without_settings(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    return _worker


def _end() -> None:
    if _worker is not None and _worker.poll() is None:
        _worker.kill()
        _worker.communicate()


def _pipe(found: Any) -> BinaryIO:
    return cast("BinaryIO", found)


def _serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal sends it to all; the service decides.
    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            check = pickle.load(given)  # noqa: S301, from our own service
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        try:
            answer: tuple[bool, Any] = True, check()
        except Exception as error:  # noqa: BLE001, the service raises it
            answer = False, error
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
