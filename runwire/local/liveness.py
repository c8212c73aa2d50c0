"""Check that the supervised processes work. A process that runs but does not work is ended and started again.

Rule 1: failed checks are counted, not seconds: after the whole machine was suspended, no process has failed.
Rule 2: a service works while it answers `/livez`; before its first answer it is still starting. nats-server does not
work when a service reports that it does not store although its disk has space: after a full disk it refuses writes
until it is restarted.
"""

import asyncio
import contextlib
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contracts.wire import health

CHECK_INTERVAL_S = 1.0
_LIVEZ_TIMEOUT_S = 2.0
_READYZ_TIMEOUT_S = 0.5
_MIN_FREE_BYTES = 16 << 20
_CHECKS_SKIPPED_AT_START = 8
"""After a start the services need a moment to notice that nats-server stores."""
_MAX_ANSWER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class LivenessCheck:
    """How to check a process: after `max_failures` failed checks in a row it is ended.

    `fault` runs in a thread and returns what is wrong, or None. `kill`: the process is ended by SIGKILL, since it would
    not react to SIGTERM.
    """

    fault: Callable[[], str | None]
    max_failures: int
    kill: bool


def service_check(port: int) -> LivenessCheck:
    """The check of a service with this health port."""
    answered = False

    def fault() -> str | None:
        nonlocal answered
        alive = b" 200 " in answer(port, "/livez", _LIVEZ_TIMEOUT_S)[:64]
        answered = answered or alive
        return None if alive or not answered else "has not answered /livez for about 8 s"

    return LivenessCheck(fault, max_failures=4, kill=True)


def nats_check(store: Path, ports: Callable[[], list[int]]) -> LivenessCheck:
    """The check of nats-server with its files in `store`; the services with these health ports write to it."""
    skipped = 0

    def fault() -> str | None:
        nonlocal skipped
        if skipped < _CHECKS_SKIPPED_AT_START:
            skipped += 1
            return None
        with contextlib.suppress(OSError):
            if shutil.disk_usage(store).free >= _MIN_FREE_BYTES and any(
                health.NOT_STORED.encode() in answer(port, "/readyz", _READYZ_TIMEOUT_S) for port in ports()
            ):
                return "does not store although its disk has space"
        return None

    return LivenessCheck(fault, max_failures=2, kill=False)


async def lasting_fault(check: LivenessCheck) -> str:
    """Return what is wrong with a process, once enough checks in a row have failed."""
    failures = 0
    while True:
        fault = await asyncio.to_thread(check.fault)
        failures = failures + 1 if fault else 0
        if fault and failures >= check.max_failures:
            return fault
        await asyncio.sleep(CHECK_INTERVAL_S)


def answer(port: int, path: str, timeout_s: float) -> bytes:
    """The answer of a loopback port to a GET, headers included; empty without an answer in time."""
    found = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        while len(found) < _MAX_ANSWER_BYTES and (piece := connection.recv(4096)):
            found += piece
    return found
