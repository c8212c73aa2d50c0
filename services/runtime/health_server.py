"""Serve `/livez` and `/readyz` over HTTP for a service that has no other routes."""

import asyncio

import orjson
import structlog

from .health import Health

logger = structlog.get_logger(__name__)

_MAX_HEAD_BYTES = 8192
_REQUEST_TIMEOUT_S = 5.0


async def serve_health(health: Health, host: str, port: int) -> asyncio.Server:
    """Listen, and log the address. Port 0: any free one. One request per connection."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                writer.write(_response(health, await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # What sends no request gets no answer.
        finally:
            writer.close()

    server = await asyncio.start_server(on_connection, host, port, limit=_MAX_HEAD_BYTES)
    logger.info("http_served", host=host, port=server.sockets[0].getsockname()[1])
    return server


def _response(health: Health, head: bytes) -> bytes:
    method, _, rest = head.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    found = health.answer(path) if method in {"GET", "HEAD"} else None
    status, body = found or (404, {"status": "not found"})
    content = orjson.dumps(body)
    lines = [
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}",  # noqa: PLR2004, HTTP's word for success
        "content-type: application/json",
        f"content-length: {len(content)}",
        "cache-control: no-store",
        "connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else content)
