"""What tools have really done: one line per execution, appended before its side effect, by any process."""

import os
import time
from pathlib import Path

from pydantic import BaseModel

from tests.system.traces import Execution

LEDGER = "RUNWIRE_TEST_LEDGER"


class Did(BaseModel):
    """The result of these tools: the key of the call that was done."""

    did: str


def enter(key: str, after: str = "") -> None:
    """Append one line to the ledger that the environment names. One write to an O_APPEND file is never torn or lost.

    `after`: what the call took from an earlier one; it has no blanks.
    """
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, f"{key} {os.getpid()} {time.time():.6f} {after}\n".encode())
    finally:
        os.close(ledger)


def read(path: Path) -> list[Execution]:
    """Every execution, in the order in which they were begun."""
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines()]
    return [Execution(key, int(pid), float(at), *after) for key, pid, at, *after in lines]
