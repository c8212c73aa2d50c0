"""What a test needs from the machine: a program, a port."""

import os
import random
import shutil
import socket
import sys
from pathlib import Path
from typing import NoReturn

import pytest

# Below the range from which Linux (32768 up) and macOS (49152 up) take the near end of outgoing connections. A client
# that keeps reconnecting to a dead server on a port of that range can, by chance, connect to itself and so take the
# port for good.
PORTS = range(20_000, 32_768)


def find_program(name: str) -> Path | None:
    """The program `name`, from this environment's own folder before PATH and servers' folder; None: there is none."""
    here = Path(sys.prefix) / "bin"
    found = shutil.which(name, path=os.pathsep.join([str(here), os.environ.get("PATH", os.defpath), "/usr/sbin"]))
    return Path(found) if found else None


def skip(reason: str) -> NoReturn:
    """Skip the test, or fail it with CI=true, so that a CI run cannot pass by skipping."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def needs_program(name: str) -> Path:
    """The program `name`; without it the test is skipped as `skip` says."""
    return find_program(name) or skip(f"{name} is not installed")


def free_port() -> int:
    """A loopback TCP port on which nobody listens now. Another process may still take it first."""
    for _ in range(1_000):
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no free port between {PORTS.start} and {PORTS.stop}")
