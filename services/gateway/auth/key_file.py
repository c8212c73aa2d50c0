"""The keys of a gateway: those of the settings, and those of a file, which is read again once a second.

Rule 1: the file is compared by its bytes, so no change is missed, whatever its time says, and one that was moved into
place or swapped through a symbolic link counts as well. It is read and parsed in a thread.
Rule 2: a file that cannot be used changes nothing: the keys stay those of the last valid one, and `/readyz` says why.
Rule 3: a gateway that started with keys never loses them all, so it never becomes one without keys.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

import structlog

from services.gateway.errors import StartRefused

from .caller import Keys
from .key_lines import KeyLineInvalid, callers

logger = structlog.get_logger(__name__)

CHECK_INTERVAL_S = 1.0
MAX_FILE_BYTES = 16 << 20
_SETTING, _FILE = "RUNWIRE_API_KEYS", "RUNWIRE_API_KEYS_FILE"


class KeyFile:
    """All keys. `current` is replaced as a whole when the file has changed."""

    def __init__(self, text: str, path: Path | None) -> None:
        """`text`: the keys of the settings. `path`: the file, if there is one. Raises StartRefused."""
        self._path = path
        self._content: bytes | None = None
        self._problem: str | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when `current` was replaced."""
        try:
            self._settings = callers(text, _SETTING)
            self.current = Keys(self._settings) if path is None else self._read(path)
        except KeyLineInvalid as error:
            raise StartRefused(str(error)) from error

    def problem(self) -> str | None:
        """Return why the file cannot be used as it is now, as a sentence for `/readyz`; None: it can."""
        return self._problem

    async def watch(self) -> None:
        """Follow the changes of the file, until cancelled."""
        while self._path is not None:
            await asyncio.sleep(CHECK_INTERVAL_S)
            before = self.current
            await asyncio.to_thread(self.check, self._path)
            if self.current is not before:
                self.on_change()

    def check(self, path: Path) -> None:
        """Take the keys of a file that has changed, or note why that is not possible."""
        content, problem = self._content, None
        try:
            current = self._read(path)
        except KeyLineInvalid as error:
            problem = str(error)
        else:
            if self._content != content:
                self.current = current
                logger.info("api_keys_reloaded", keys=len(current))
        if problem != self._problem:
            self._problem = problem
            if problem is not None:
                logger.warning("api_keys_not_reloaded", reason=problem)

    def _read(self, path: Path) -> Keys:
        """Return all keys. An unchanged file is not parsed again. Raises KeyLineInvalid."""
        try:
            content = _content(path)
            if content == self._content:
                return self.current
            found = callers(content.decode("utf-8-sig"), _FILE)
        except OSError as error:
            raise KeyLineInvalid(f"{_FILE} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise KeyLineInvalid(f"{_FILE} is not UTF-8, from byte {error.start} on.") from error
        if not found:
            raise KeyLineInvalid(f"{_FILE} holds no key.")
        all_keys = self._settings | found
        if len({(caller.tenant, caller.key_id) for caller in all_keys.values()}) < len(self._settings) + len(found):
            raise KeyLineInvalid(f"{_FILE} holds a key, or the name of one, that stands in {_SETTING} too.")
        self._content = content
        return Keys(all_keys)


def _content(path: Path) -> bytes:
    # Without O_NONBLOCK, opening a named pipe would wait for its writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise KeyLineInvalid(f"{_FILE} is not a regular file.")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise KeyLineInvalid(f"{_FILE} has more than {MAX_FILE_BYTES} bytes.")
    return content
