"""Strikes a process at one message that it sends to NATS: a tap between both sees it before the server does."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from tests.support.nats_tap import pass_on
from tests.support.waiting import wait_until
from tests.system.system import System

T = TypeVar("T")
Hits = Callable[[str, bytes], bool]
"""Whether a message is the one, by subject and body."""


@contextmanager
def for_one_test(system: System, *, new_planners: bool = False) -> Iterator[System]:
    """Give a system to a test, and make it whole again. When the test fails, what the processes logged is shown.

    `new_planners`: they remember slow tools for a while.
    """
    for name in system.stack.names("planner") if new_planners else ():
        system.stack.kill(name)
    system.stack.mend()
    with system.stack.showing_logs():
        yield system
        for tap in system.taps.values():
            tap.on_publish = pass_on
        system.stack.mend()


async def mended(system: System) -> None:
    """Return once everything runs, and each planner has learned of each tool runner: then it makes direct calls."""
    for name in system.stack.parts:
        system.stack.spawn(name)  # Not in another thread: the process ends with the thread that started it.
    await asyncio.to_thread(system.stack.mend)
    runners, announced = set(system.stack.names("tool_runner")), set[str]()

    def note(name: str, subject: str, _body: bytes) -> bool:
        announced.update({name} if subject == "direct.here" else ())
        return True

    for name in runners:
        system.taps[name].on_publish = partial(note, name)
    await wait_until(lambda: announced == runners, timeout=20, what="the tool runners have announced themselves")


class Strike:
    """Strikes a process at the first message of its kind that `hits`. `act` returns whether the message is sent."""

    def __init__(self, system: System, kind: str, hits: Hits, act: Callable[["Strike"], bool]) -> None:
        self.system = system
        self.name = ""
        """The process that was struck."""
        self.subject = ""
        """Of the message."""
        self.done = threading.Event()
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._hits = hits
        self._act = act
        for name in system.stack.names(kind):
            system.taps[name].on_publish = partial(self._see, name)

    def _see(self, name: str, subject: str, body: bytes) -> bool:
        with self._lock:
            if self.name or not self._hits(subject, body):
                return True
            self.name, self.subject = name, subject
        is_sent = self._act(self)
        self.done.set()
        return is_sent

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work, in which the process may die; then it is started again."""
        working = asyncio.create_task(work)
        await wait_until(lambda: self.done.is_set() or working.done(), timeout=60, what="the process has died")
        if self.done.is_set():
            self.system.stack.spawn(self.name)
        return await working

    async def struck(self) -> str:
        """The process, once it was struck."""
        await wait_until(self.done.is_set, timeout=20, what="the message came that the test strikes at")
        return self.name


def dies(strike: Strike) -> bool:
    """Kill the process; its message is lost."""
    strike.system.stack.kill(strike.name)
    return False


def dies_after(strike: Strike) -> bool:
    """Kill the process; its message is sent, and no answer to it is received."""
    strike.system.stack.kill(strike.name)
    return True


def stops(strike: Strike) -> bool:
    """Stop the process; its message is sent when it goes on."""
    strike.system.stack.freeze(strike.name)
    strike.done.set()
    return strike.released.wait(60)


def seen(_: Strike) -> bool:
    """Only note who sent it."""
    return True
