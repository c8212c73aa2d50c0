"""The data folder of `runwire up`: what runs from it now, and its secrets.

Rule 1: `endpoints.json` names what runs: it is written once everything is ready and removed before anything stops. A
launcher that was killed leaves the file behind, but not its lock, so the file is then ignored.
Rule 2: a secret is in a file that only its owner can read, never in an argument, a log or `endpoints.json`.
Rule 3: a password of the embedded NATS server is sent to that server only.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from contracts.wire.rights import LOCAL_TOOLS
from runwire.errors import IdentitiesUnreadable
from runwire.identities import read, write_private

if sys.platform != "win32":
    import fcntl

_ENDPOINTS = "endpoints.json"


def data_dir() -> Path:
    """`RUNWIRE_DATA_DIR`, else `.runwire` in the working directory."""
    return Path(os.environ.get("RUNWIRE_DATA_DIR") or ".runwire").resolve()


def remembered(data: Path) -> dict[str, Any]:
    """What runs from this folder now: `nats_url`, `url`, `nats_port`, `sync`; empty if nothing does."""
    try:
        with (data / _ENDPOINTS).open(encoding="utf-8") as opened:
            found = {} if _is_left_over(opened) else json.load(opened)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def published(data: Path, endpoints: Mapping[str, Any]) -> Iterator[None]:
    """Name what runs in `endpoints.json` until the context ends."""
    fresh = data / f"{_ENDPOINTS}.new"
    with fresh.open("w", encoding="utf-8") as opened:
        if sys.platform != "win32":
            fcntl.flock(opened, fcntl.LOCK_EX)
        opened.write(json.dumps(endpoints))
        opened.flush()
        fresh.replace(data / _ENDPOINTS)
        try:
            yield
        finally:
            withdraw(data)


def withdraw(data: Path) -> None:
    """Remove `endpoints.json`."""
    (data / _ENDPOINTS).unlink(missing_ok=True)


def _is_left_over(opened: IO[str]) -> bool:
    """Whether the launcher that wrote the file is gone: the kernel has released its lock."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def secret(file: Path, make: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Read a secret of the data folder, or create it."""
    try:
        found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = make()
    write_private(file, json.dumps(found))
    return found


def nats_login(data: Path, url: str) -> dict[str, str]:
    """The login for tools on the embedded NATS server (`user`, `password`), if `url` names it; else empty."""
    running = remembered(data).get("nats_url")
    if not isinstance(running, str) or _address(url) != _address(running):
        return {}
    try:
        return {"user": LOCAL_TOOLS, "password": read(data).passwords[LOCAL_TOOLS]}
    except (IdentitiesUnreadable, KeyError):
        return {}


def _address(url: str) -> str:
    return url.rpartition("://")[2].rstrip("/").replace("localhost", "127.0.0.1")
