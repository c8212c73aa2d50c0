"""What tools have really done: one line per execution, appended before its side effect, by any process."""

import os
import time
from pathlib import Path

from tests.system.traces import Execution

LEDGER = "RUNWIRE_TEST_LEDGER"
STOPPED = "/stopped"
"""Follows the key of a call that was told to stop."""


def enter(key: str) -> None:
    """Append one line to the ledger that the environment names. One write to an O_APPEND file is never torn or lost."""
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, f"{key} {os.getpid()} {time.time():.6f}\n".encode())
    finally:
        os.close(ledger)


def read(path: Path) -> list[Execution]:
    """Every execution, in the order in which they were begun."""
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines()]
    return [Execution(key, int(pid), float(at)) for key, pid, at in lines]
