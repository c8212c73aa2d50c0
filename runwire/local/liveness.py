"""Whether a child of the launcher is of use. One that runs and is not is ended, and its keeper starts it again.

Rule 1: looks are counted, not seconds: a machine that was frozen has not kept anybody from answering.
Rule 2: a service is of use while it answers `/livez`, once it ever has. nats-server is of no use when a service says
that it does not store although its disk has room: it remembers an error of a disk that was full until it is started
again.
"""

import asyncio
import contextlib
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contracts import health

PAUSE_S = 1.0
_ANSWER_S = 2.0
_ROOM_BYTES = 16 << 20
_EARLY_LOOKS = 8
"""After a start the services need a moment to notice that it stores."""
_MOST_BYTES = 64 << 10

Fault = Callable[[], str | None]
"""Looks, in a thread, and says what is wrong; None when nothing is."""


@dataclass(frozen=True, slots=True)
class Use:
    """How to look at a child: one that is at fault at `looks` looks in a row is ended; `kill`: at once, since it would not hear of it."""

    fault: Fault
    looks: int
    kill: bool


def of_service(port: int) -> Use:
    """A service with its health on this port."""
    answered = False

    def fault() -> str | None:
        nonlocal answered
        alive = b" 200 " in answer(port, "/livez", _ANSWER_S)[:64]
        answered = answered or alive
        return None if alive or not answered else "has not answered /livez for about 8 s"

    return Use(fault, looks=4, kill=True)


def of_nats(store: Path, ports: Callable[[], list[int]]) -> Use:
    """nats-server with its files in `store`; the services with their health on `ports` write to it."""
    early = _EARLY_LOOKS

    def fault() -> str | None:
        nonlocal early
        early -= 1
        if early >= 0:
            return None
        with contextlib.suppress(OSError):
            if shutil.disk_usage(store).free >= _ROOM_BYTES and any(
                health.NOT_STORED.encode() in answer(port, "/readyz", 0.5) for port in ports()
            ):
                return "does not store although its disk has room"
        return None

    return Use(fault, looks=2, kill=False)


async def useless(use: Use) -> str:
    """Return what is wrong with a child, once that has lasted."""
    wrong = 0
    while True:
        fault = await asyncio.to_thread(use.fault)
        wrong = wrong + 1 if fault else 0
        if fault and wrong >= use.looks:
            return fault
        await asyncio.sleep(PAUSE_S)


def answer(port: int, path: str, wait_s: float) -> bytes:
    """What a port of loopback answers to a GET, headers included; empty without an answer in time."""
    found = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), wait_s) as connection:
        connection.settimeout(wait_s)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        while len(found) < _MOST_BYTES and (piece := connection.recv(4096)):
            found += piece
    return found
