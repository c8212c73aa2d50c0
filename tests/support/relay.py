"""Stands in front of a real S3 server and may disturb those who read with presigned URLs, and nobody else.

So a store reaches the server while its readers do not, as where the server's network is closed to them.
"""

import asyncio
import copy
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

from .s3_servers import S3Server

Mood = Literal["pass", "refuse", "freeze", "deny", "garbage"]

_PRESIGNED = re.compile(rb"GET [^\r\n]*X-Amz-Signature=")
_DENIED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\ndenied"


class Relay:
    """What it does to readers stands in `mood`, and after how many bytes it cuts them off, once, in `cut_after`.

    Attributes:
        port: where it listens.
        reads: requests with presigned URLs that have come.
    """

    def __init__(self, s3: S3Server) -> None:
        self._target = s3.port
        self._server: asyncio.Server | None = None
        self._working: set[asyncio.Task[None]] = set()
        self.mood: Mood = "pass"
        self.cut_after: int | None = None
        self.port = 0
        self.reads = 0

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Listen no more, and break what is open."""
        assert self._server is not None
        self._server.close()
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        try:
            with suppress(OSError):
                await self._serve(reader, writer)
        finally:
            self._working.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        back = asyncio.create_task(self._copy_back(far_reader, writer))
        try:
            while data := await reader.read(1 << 20):
                if _PRESIGNED.match(data):
                    self.reads += 1
                    if self.mood == "refuse":
                        return
                    if self.mood == "freeze":
                        await asyncio.Event().wait()
                    if self.mood == "deny":
                        writer.write(_DENIED)
                        continue
                    if self.mood == "garbage":
                        writer.write(b"SSH-2.0-who\r\n\r\n")
                        return
                far_writer.write(data)
                await far_writer.drain()
        finally:
            far_writer.close()
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)

    async def _copy_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if self.cut_after is not None:
                    self.cut_after -= len(data)
                    if self.cut_after <= 0:
                        self.cut_after = None
                        break
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def relayed(s3: S3Server) -> AsyncIterator[tuple[Relay, S3Server]]:
    """A relay, and the server as it looks from behind it."""
    relay = Relay(s3)
    await relay.start()
    seen = copy.copy(s3)
    seen.port = relay.port
    try:
        yield relay, seen
    finally:
        await relay.stop()
