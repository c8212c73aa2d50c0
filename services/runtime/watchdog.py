"""Detect a blocked event loop, log what blocks it, and end the process when it is blocked for too long.

While the loop is blocked the service answers nobody, `/livez` included, and holds messages of others. Its supervisor
restarts it.

Rule 1: time counts only while this thread runs or the process uses CPU: a process that is suspended (SIGSTOP, a frozen
machine) is not blocked.
Rule 2: the log names functions and lines, never values.
Rule 3: code that holds the interpreter lock (a regular expression over megabytes) blocks this thread too, so the kernel
watches as well. A timer that each turn of the loop restarts ends the process after twice the limit in CPU time.
"""

import asyncio
import contextvars
import faulthandler
import os
import signal
import sys
import threading
import time
from types import FrameType

import structlog

logger = structlog.get_logger(__name__)

TICK_S = 0.05
BLOCKED_S = 0.1
"""A longer block is logged once it is over."""
EXIT_CODE = 70
_QUIET_S = 10.0
"""Shortest time between two warnings."""
_SHOWN_FRAMES = 12
_LOOP = "asyncio.runners."


class Watchdog:
    """Watches the loop in which it is started. `exit_s`: seconds of blocking after which the process ends; 0: never."""

    def __init__(self, exit_s: float) -> None:
        self._exit_s = exit_s
        self._turns = 0
        self._thread_id = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Watch the running loop from a separate thread."""
        self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
        if self._exit_s:
            # This handler needs no interpreter lock: it prints the stack, then lets the signal end the process.
            faulthandler.register(signal.SIGVTALRM, all_threads=False, chain=True)
        self._turn()
        work = contextvars.copy_context().run
        threading.Thread(target=work, args=(self._watch,), name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _turn(self) -> None:
        if self._loop is None or self._stopped.is_set():
            return
        self._turns += 1
        if self._exit_s:
            signal.setitimer(signal.ITIMER_VIRTUAL, 2 * self._exit_s)
        self._timer = self._loop.call_later(TICK_S, self._turn)

    def _watch(self) -> None:
        turns, ticks, blocked_s, stack, quiet_until = -1, 0, 0.0, list[str](), 0.0
        at, used = time.monotonic(), time.process_time()
        while not self._stopped.wait(TICK_S):
            before, used_before = at, used
            at, used = time.monotonic(), time.process_time()
            if self._turns != turns:
                if stack and at >= quiet_until:
                    logger.warning("event_loop_blocked", ms=round(blocked_s * 1000), by=stack)
                    quiet_until = at + _QUIET_S
                turns, ticks, blocked_s, stack = self._turns, 0, 0.0, []
                continue
            ticks += 1
            blocked_s += min(at - before, 2 * TICK_S + used - used_before)
            # Ticks count, not seconds: after a late tick the loop gets a chance to run before the process is ended.
            has_to_end = 0 < self._exit_s < ticks * TICK_S
            if has_to_end or (blocked_s > BLOCKED_S and not stack):
                stack = stack_of(sys._current_frames().get(self._thread_id))  # noqa: SLF001, the documented way
            if has_to_end:
                because = "its event loop stands still"
                logger.critical("process_ended", because=because, seconds=round(blocked_s, 1), by=stack)
                sys.stderr.flush()
                os._exit(EXIT_CODE)


def stack_of(frame: FrameType | None) -> list[str]:
    """Return a thread's stack of functions, the innermost last, without the event loop's; empty while it waits."""
    names: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "?")
        names.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    names.reverse()
    loop = max((number for number, name in enumerate(names) if name.startswith(_LOOP)), default=-1)
    return names[loop + 1 :][-_SHOWN_FRAMES:]
