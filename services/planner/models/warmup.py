"""A provider on loopback that replies with one word. The first HTTP request goes to it, before a run needs one."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_DELTA = (
    b'{"id":"1","object":"chat.completion.chunk","created":1,"model":"ready",'
    b'"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":null}]}'
)
_REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: "
    + _DELTA
    + b"\n\ndata: [DONE]\n\n"
)


@asynccontextmanager
async def ready_provider() -> AsyncIterator[str]:
    """Serve while the block runs. Yields the base address."""
    async with await asyncio.start_server(_answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(_REPLY)
        await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
