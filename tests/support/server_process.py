"""A server as a process that a test may stop, freeze, kill and start again."""

import abc
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from .forked import die_with_parent
from .needs import free_port
from .waiting import wait_until_blocking

#: Seconds; a store of a few gigabytes is read again within the first.
START_LIMIT, STOP_LIMIT = 40, 15


@contextlib.contextmanager
def ends_with_block(process: subprocess.Popen[Any], within_s: float = 30) -> Iterator[None]:
    """Ask a process to end after the block. One that does not is killed, and named by the TimeoutExpired."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(within_s)
        finally:
            process.kill()
            process.wait()


class ServerFailed(RuntimeError):
    """The server ended before it was ready; the end of its log is the message."""


class ServerProcess(abc.ABC):
    """One server on loopback. Port and files stay the same over restarts, so clients find it again.

    Attributes:
        port: chosen when it is made.
        log: what it writes, of all starts.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abc.abstractmethod
    def start(self) -> None:
        """Start it, and return once it takes clients."""

    @abc.abstractmethod
    def _answers(self) -> bool:
        """Whether it takes clients."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it: nobody needs what is in it any more."""
        self.kill()

    @property
    def pid(self) -> int:
        """Of the process; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it in its tracks: connections are taken and stay open, and nobody answers."""
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # Until then it may still answer.

    def thaw(self) -> None:
        """Let it go on, with everything that waits in its sockets."""
        self._signal(signal.SIGCONT)

    def _signal(self, by: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(by)

    def _launch(
        self,
        command: list[str],
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        user: str | None = None,
        ends_with_thread: bool = True,
    ) -> None:
        """Start the process and return once it takes clients.

        `ends_with_thread`: on Linux it ends with the *thread* that calls this, so that a killed test run leaves none.

        Raises:
            ServerFailed: it ended instead.
        """
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                user=user,
                cwd=folder,
                preexec_fn=die_with_parent if ends_with_thread and sys.platform == "linux" else None,  # noqa: PLW1509
            )

        def is_ready() -> bool:
            if not self.running:
                raise ServerFailed(self.log.read_text(errors="replace")[-2000:])
            return self._answers()

        wait_until_blocking(is_ready, timeout=START_LIMIT, what=f"{Path(command[0]).name} answers on port {self.port}")

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(by)
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
