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
"""A longer block is logged."""
STUCK_S = 5.0
"""After a block of this length the callers of `/livez` treat the service as dead, so it is logged as an error."""
EXIT_CODE = 70
_QUIET_S = 10.0
"""Shortest time between two warnings. Those left out are counted in the next one (`left_out`)."""
_STEADY_TICKS = 20
"""Consecutive ticks of this thread before the process is ended: a loop that was just unblocked gets a chance to run."""
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
        turns, blocked = -1, BlockedPeriod()
        quiet_until, left_out = 0.0, 0
        at, used = time.monotonic(), time.process_time()
        while not self._stopped.wait(TICK_S):
            before, used_before = at, used
            at, used = time.monotonic(), time.process_time()
            if self._turns == turns:
                self._on_blocked(blocked, at - before, used - used_before)
                continue
            turns = self._turns
            if blocked.is_worth_logging:
                if at >= quiet_until:
                    logger.warning(
                        "event_loop_blocked", ms=round(blocked.seconds * 1000), by=blocked.stack, left_out=left_out
                    )
                    quiet_until, left_out = at + _QUIET_S, 0
                else:
                    left_out += 1
            blocked = BlockedPeriod()

    def _on_blocked(self, blocked: "BlockedPeriod", passed_s: float, used_s: float) -> None:
        blocked.add(passed_s, used_s)
        if blocked.seconds < BLOCKED_S:
            return
        if not blocked.stack or blocked.seconds > STUCK_S:
            blocked.stack = stack_of(sys._current_frames().get(self._thread_id))  # noqa: SLF001, the documented way
        if blocked.seconds > STUCK_S and not blocked.was_logged:
            blocked.was_logged = True
            logger.error("event_loop_stuck", seconds=round(blocked.seconds, 1), by=blocked.stack)
        if (
            self._exit_s
            and blocked.seconds > self._exit_s
            and blocked.steady_ticks >= _STEADY_TICKS
            and not self._stopped.is_set()
        ):
            logger.critical(
                "process_ended",
                because="its event loop stands still",
                seconds=round(blocked.seconds, 1),
                by=blocked.stack,
            )
            sys.stderr.flush()
            os._exit(EXIT_CODE)


class BlockedPeriod:
    """One period in which the loop was blocked."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steady_ticks = 0
        self.stack: list[str] = []
        self.was_logged = False

    @property
    def is_worth_logging(self) -> bool:
        """Whether our own code blocked the loop.

        Without a stack of ours the machine was busy. That is logged only from ten times `BLOCKED_S` on.
        """
        return self.seconds > BLOCKED_S and (bool(self.stack) or self.seconds > 10 * BLOCKED_S)

    def add(self, passed_s: float, used_s: float) -> None:
        """Count a tick that took `passed_s`, in which the process used `used_s` of CPU."""
        on_time = passed_s <= 3 * TICK_S
        self.steady_ticks = self.steady_ticks + 1 if on_time else 0
        self.seconds += passed_s if on_time else min(passed_s, max(2 * TICK_S, used_s))


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
