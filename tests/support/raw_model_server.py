"""A provider on raw sockets, which sends exactly the bytes of a test, in its pieces, in the clear or over TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import orjson

DONE = b"data: [DONE]\n\n"


def says(text: str) -> bytes:
    """A chunk of a stream."""
    return b"data: " + orjson.dumps({"choices": [{"delta": {"content": text}}]}) + b"\n\n"


def response(*pieces: bytes) -> bytes:
    """A whole response, each piece in a chunk of its own."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class RawServer:
    """Answers the n-th request with `answer(n)`; what it returns beyond the first response is sent a moment later.

    Where the response is empty, it closes the connection.
    """

    def __init__(self, answer: Callable[[int], list[bytes]]) -> None:
        self.heads: list[bytes] = []
        self.url = ""
        self.sent_late = asyncio.Event()
        self._answer = answer
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                self.heads.append(head)
                first, *late = self._answer(len(self.heads))
                if not first:
                    writer.close()
                    return
                writer.write(first)
                await writer.drain()
                if late:
                    await asyncio.sleep(0.05)
                    writer.write(b"".join(late))
                    await writer.drain()
                    self.sent_late.set()

    async def close(self) -> None:
        """End all connections, whatever a client has not read."""
        for writer in self._connections.values():
            writer.transport.abort()
        await asyncio.gather(*self._connections, *(writer.wait_closed() for writer in self._connections.values()))


@asynccontextmanager
async def raw_server(
    answer: Callable[[int], list[bytes]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    raw = RawServer(answer)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=tls)
    raw.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield raw
    finally:
        server.close()
        await raw.close()
