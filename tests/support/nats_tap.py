"""A proxy between one process and nats-server: a test sees each message of the process before the server does."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO

_END_LIMIT_S = 5
OnPublish = Callable[[str, bytes], bool]
"""Subject and body (headers included) of a message. It is passed on if this returns True, once this returns; else it
is lost, and the connection with it."""


def pass_on(_subject: str, _body: bytes) -> bool:
    """Let every message through."""
    return True


class NatsTap:
    """Listens on a port of its own and passes everything on, in threads.

    Attributes:
        url: where the process connects.
        on_publish: called in a thread; it may be replaced at any time.
    """

    def __init__(self, server_port: int) -> None:
        """Listen. `server_port`: of the server on loopback; it may be down for a while."""
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self.on_publish: OnPublish = pass_on
        self._threads = [_started(self._accept)]

    def close(self) -> None:
        """Take no more connections, and wait for the end of those that are open: their process has ended."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_END_LIMIT_S)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(_started(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._server_port)) as server:
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            down = _started(_copy, server, client)
            try:
                with client.makefile("rb") as sent:
                    self._publish(sent, server)
            finally:
                _end(client, server)
                down.join()

    def _publish(self, sent: IO[bytes], server: socket.socket) -> None:
        while line := sent.readline():
            words, body = line.split(), b""
            if words[0].upper() in {b"PUB", b"HPUB"}:
                size = int(words[-1]) + 2
                body = sent.read(size)
                if len(body) < size or not self.on_publish(words[1].decode(), body):
                    return
            server.sendall(line + body)


def _started(work: Callable[..., None], *arguments: socket.socket) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _copy(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while data := server.recv(1 << 16):
            client.sendall(data)
    _end(client, server)


def _end(*connections: socket.socket) -> None:
    """Wake the threads that read from these connections."""
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
