"""One connection to an S3 server, for `s3_reads`: a request at a time, all of it in threads.

The standard library's, since nothing more is needed: no service but the artifact store has an S3 client.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TypeVar

T = TypeVar("T")

_CONNECT_S, _READ_S = 2.0, 3.0
_OK, _PARTIAL = 200, 206


class ReadFailed(Exception):
    """The S3 server cannot be reached from here, or did not answer as it should. Says no more than that: URLs are secrets."""


class Line:
    """A connection. `origin`: scheme and host with port; `used_at`: when it was let go, by the monotonic clock."""

    def __init__(self, origin: tuple[str, str]) -> None:
        self.origin = origin
        self.used_at = 0.0
        self.is_open = False
        self._http = (HTTPSConnection if origin[0] == "https" else HTTPConnection)(origin[1], timeout=_CONNECT_S)
        self._socket: socket.socket | None = None
        self._answer: HTTPResponse | None = None
        self._lock = threading.Lock()
        self._in_work = False
        self._abandoned = False

    def ask(self, target: str, offset: int, length: int, *, whole: bool) -> None:
        """Ask for `length` bytes from `offset` on; `whole`: these are all. Raises ReadFailed unless exactly they will follow."""
        headers = {} if whole else {"Range": f"bytes={offset}-{offset + length - 1}"}
        is_kept = self.is_open
        try:
            answer = self._asked(target, headers)
        except (ConnectionError, HTTPException):
            if not is_kept:
                raise
            self._http.close()  # The server has closed what was kept for it.
            answer = self._asked(target, headers)
        # Of a range, rclone says 200 and the range's length.
        if answer.status not in {_OK, _PARTIAL} or answer.length != length or answer.getheader("Content-Encoding"):
            raise ReadFailed("another answer was expected")
        told = answer.getheader("Content-Range")
        if told is not None and not told.startswith(f"bytes {offset}-{offset + length - 1}/"):
            raise ReadFailed("another range was sent")

    def _asked(self, target: str, headers: dict[str, str]) -> HTTPResponse:
        if self._http.sock is None:
            self._http.connect()
        self._socket = self._http.sock
        self._socket.settimeout(_READ_S)
        self.is_open = True
        self._http.request("GET", target, headers=headers)
        self._answer = self._http.getresponse()
        return self._answer

    def read(self, length: int) -> bytes:
        """Return exactly the next `length` bytes. Raises ReadFailed where fewer come."""
        data = self._answer.read(length) if self._answer is not None else b""
        if len(data) != length:
            raise ReadFailed("fewer bytes came than were announced")
        return data

    @property
    def is_done(self) -> bool:
        """Whether the answer was read to its end, and another may follow."""
        answer = self._answer
        return answer is not None and answer.isclosed() and not answer.will_close and not self._abandoned

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work, or will be."""
        return self._in_work

    def busy(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return work for a thread. If nobody waits for it any more, it is not begun, or closes the connection at its end."""
        self._in_work = True

        def do() -> T:
            try:
                if self._abandoned:
                    raise ReadFailed("nobody waits for it")
                return work()
            finally:
                with self._lock:
                    self._in_work = False
                    if self._abandoned:
                        self.close()

        return do

    def abandon(self) -> None:
        """Nobody waits for the work any more: end what blocks its thread."""
        with self._lock:
            self._abandoned = True
            if not self._in_work:
                self.close()
            elif self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it."""
        if self._answer is not None:
            self._answer.close()
        self._http.close()
