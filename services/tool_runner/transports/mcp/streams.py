"""The streams to a server: a process over its standard input and output, or streamable HTTP.

Rule 1: what a server sends is bounded: a message in bytes, all of it in messages per second. One large answer fails its
call and not the connection.
Rule 2: what a process writes that is no message is skipped and counted. Its standard error is that of this process at
the log level debug, and else nobody's: it may name secrets.
Rule 3: a request over HTTP that fails says whether it was certainly not carried out (`NOT_DONE`), or may have been
(`LOST`).
"""

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import cast

import anyio
import httpx2
import orjson
import structlog
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter

from . import guard
from .config import McpServer, resolved
from .oauth import NoToken, Tokens

logger = structlog.get_logger(__name__)

NOT_DONE, LOST, REFUSED = -31001, -31002, -31003
"""Codes of errors that are made here: of the connection, and of an answer that is no message."""
CONNECTION_LOST = "the connection was lost"
Receive = Callable[[], Awaitable[SessionMessage | Exception]]
_MAX_UNASKED, _MAX_UNASKED_PER_S = 10_000, 100
"""Messages that nobody asked for: so many may come at once, and so many a second."""
_OF_REQUEST, _OF_LINE = 10, 32
"""A request of the server counts as so many, since each is answered; a line of an event stream as so many bytes."""
_MAX_STREAMED_PER_S = 1 << 17
"""Bytes of an event stream, beyond two messages at once."""
_MAX_REOPENED, _MAX_REOPENED_PER_S = 60, 0.2
"""Event streams that a server has ended, and that are asked for again: the SDK would do so for ever."""
_USED = frozenset({"notifications/progress", "notifications/tools/list_changed"})
_EXIT_S, _IDLE_S = 5.0, 2.0
_ID = re.compile(rb'"id"\s*:\s*(\d{1,15})\b')
_HEAD_BYTES, _MAX_ERROR_BYTES, _MAX_END_BYTES = 256, 64 << 10, 300


@dataclass(slots=True)
class Notes:
    """What is known of a connection beside its messages. `skipped`: lines that are none. `end`: how it ended."""

    skipped: int = 0
    end: str = ""


@asynccontextmanager
async def streams_of(server: McpServer, notes: Notes) -> AsyncIterator[tuple["Received", WriteStream[SessionMessage]]]:
    """Return the streams to a server, while it is there. Raises OSError, ValueError and httpx2.HTTPError."""
    async with (_started if server.command is not None else _over_http)(server, notes) as (receive, to_send):
        yield Received(receive, notes), to_send


@asynccontextmanager
async def _over_http(server: McpServer, _notes: Notes) -> AsyncIterator[tuple[Receive, WriteStream[SessionMessage]]]:
    headers = httpx2.Headers({name: resolved(value) for name, value in server.headers.items()})
    headers["accept-encoding"] = "identity"  # A few bytes could be unpacked to any number.
    timeout = httpx2.Timeout(30, read=server.timeout_s + 300)
    async with (
        httpx2.AsyncClient(transport=_Bounded(server), headers=headers, timeout=timeout) as client,
        streamable_http_client(str(server.url), http_client=client, max_sse_event_size=server.max_message_bytes) as (
            received,
            to_send,
        ),
    ):
        yield received.receive, to_send


class Received(ObjectReceiveStream[SessionMessage | Exception]):
    """What a server sends, without what nobody uses. It ends where too much comes that nobody has asked for."""

    def __init__(self, receive: Receive, notes: Notes) -> None:
        self._receive, self._notes = receive, notes
        self._room = _Bucket(_MAX_UNASKED, _MAX_UNASKED_PER_S)

    def expect(self) -> None:
        """Make room for an answer."""
        self._room.take(-1)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        while True:
            found = await self._receive()
            message = found.message if isinstance(found, SessionMessage) else None
            if not self._room.take(_OF_REQUEST if isinstance(message, JSONRPCRequest) else 1):
                self._notes.end = "it was ended, since it sent too many messages that nobody asked for"
                raise anyio.EndOfStream
            if message is not None and (not isinstance(message, JSONRPCNotification) or message.method in _USED):
                return found

    async def aclose(self) -> None:
        """Nothing: the streams close with their context."""


class _Input(ObjectSendStream[SessionMessage]):
    """The standard input of a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, item: SessionMessage) -> None:
        stdin = cast("asyncio.StreamWriter", self._process.stdin)
        try:
            stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
        except OSError as error:  # It takes no more: the connection has ended for its readers too.
            self._process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]  # noqa: SLF001
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Nothing, see `Received`."""


@asynccontextmanager
async def _started(server: McpServer, notes: Notes) -> AsyncIterator[tuple[Receive, WriteStream[SessionMessage]]]:
    """Start a server's command, and end it with all its children (`guard`)."""
    lifeline, kept = socket.socketpair()
    kept.setblocking(False)  # noqa: FBT003, it takes no name
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", guard.__file__, str(lifeline.fileno()), str(server.command), *server.args,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=server.max_message_bytes,
            stderr=None if logger.is_enabled_for(logging.DEBUG) else subprocess.DEVNULL,
            cwd=server.cwd, env=server.environment(), pass_fds=(lifeline.fileno(),), start_new_session=True,
        )
    )  # fmt: skip
    try:
        process = await asyncio.shield(starting)
    except BaseException:
        kept.close()  # So the guard ends.
        with suppress(OSError, ValueError):
            (await starting)._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        raise
    finally:
        lifeline.close()
    stdout = cast("asyncio.StreamReader", process.stdout)
    try:
        yield partial(_next_message, stdout, server.max_message_bytes, notes), _Input(process)
    finally:
        ending = asyncio.create_task(_ended(process, kept, notes, is_over=stdout.at_eof()))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:  # It had begun to end when the tool runner stopped.
            await ending
            raise


async def _next_message(stdout: asyncio.StreamReader, limit: int, notes: Notes) -> SessionMessage | Exception:
    head, size, line = b"", 0, b""
    while not line:
        try:
            line = await stdout.readuntil()
        except asyncio.LimitOverrunError as error:
            part = await stdout.read(error.consumed)
            head, size = head or part[:_HEAD_BYTES], size + len(part)
        except (asyncio.IncompleteReadError, OSError):
            raise anyio.EndOfStream from None
    if size:
        found = _ID.search(head)
        reason = f"the answer has {size:,} bytes, and at most {limit:,} are taken; ask for less, or for a part of it"
        refusal = ErrorData(code=REFUSED, message=reason)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(found[1]) if found else None, error=refusal))
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        notes.skipped += bool(line.strip())
        return error


async def _ended(process: asyncio.subprocess.Process, lifeline: socket.socket, notes: Notes, *, is_over: bool) -> None:
    """Close its standard input first; then the guard ends what is left, and last it is killed from here."""

    async def has_ended(wait_s: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), wait_s)
        return process.returncode is not None

    cast("asyncio.StreamWriter", process.stdin).close()
    is_asked = not await has_ended(guard.GRACE_S)
    if is_over and not is_asked:
        with suppress(OSError):
            notes.end = notes.end or lifeline.recv(_MAX_END_BYTES).decode(errors="replace")
    lifeline.close()
    if is_asked:
        await has_ended(3 * guard.GRACE_S)
    with suppress(ProcessLookupError):  # Also where the guard itself was killed.
        os.killpg(process.pid, signal.SIGKILL)
    await has_ended(_EXIT_S)
    # A process that has left the group may hold a pipe open, and only this closes our end of it.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


class _Bucket:
    """So much at once, and for how long a second."""

    def __init__(self, capacity: float, per_s: float) -> None:
        self._capacity, self._per_s, self._left, self._at = capacity, per_s, capacity, time.monotonic()

    def take(self, amount: float) -> bool:
        """Take some, and return whether there was so much."""
        now = time.monotonic()
        self._left = min(self._capacity, self._left + (now - self._at) * self._per_s) - amount
        self._at = now
        return self._left >= 0


class _Bounded(httpx2.AsyncHTTPTransport):
    """HTTP that answers with an error of JSON-RPC wherever a request fails. It uses no proxy."""

    def __init__(self, server: McpServer) -> None:
        # Many servers close an idle connection after 5 s: a call that meets this end would be taken for lost.
        super().__init__(limits=httpx2.Limits(keepalive_expiry=_IDLE_S))
        self._max_bytes, self._reopened = server.max_message_bytes, _Bucket(_MAX_REOPENED, _MAX_REOPENED_PER_S)
        self._tokens = Tokens(server, super().handle_async_request) if server.oauth is not None else None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, with a token if the file asks for one. One that is refused is replaced once."""
        if request.method == "DELETE":  # The end of a session waits for nobody.
            request.extensions = {**request.extensions, "timeout": httpx2.Timeout(_EXIT_S).as_dict()}
        if request.method == "GET" and not self._reopened.take(1):
            return _failed(request, LOST, "it ends its event streams too often")
        if self._tokens is None:
            return await self._sent(request)
        token = ""
        for _ in range(2):
            try:
                token = await self._tokens.other_than(token)
            except NoToken as error:
                return _failed(request, NOT_DONE, f"there is no token for it: {error}")
            request.headers["authorization"] = f"Bearer {token}"
            response = await self._sent(request)
            if response.status_code != httpx2.codes.UNAUTHORIZED:
                break
        return response

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            return _failed(request, NOT_DONE, f"it cannot be reached: {str(error) or type(error).__name__}")
        except httpx2.TransportError as error:
            return _failed(request, LOST, f"{CONNECTION_LOST}: {type(error).__name__}")
        if (encoding := response.headers.get("content-encoding", "identity").lower()) != "identity":
            await response.aclose()
            return _failed(request, REFUSED, f"its answer is encoded as {encoding[:40]}, and only plain ones are taken")
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        room = _Bucket(self._max_bytes * (1 + is_stream), _MAX_STREAMED_PER_S * is_stream)
        response.stream = _Limited(response.stream, room, _OF_LINE * is_stream)
        if response.status_code < httpx2.codes.BAD_REQUEST:
            return response
        with suppress(httpx2.StreamError):
            await response.aread()
        await response.aclose()
        if response.status_code == httpx2.codes.NOT_FOUND and "mcp-session-id" in request.headers:
            return _failed(request, NOT_DONE, "its session is gone")
        with suppress(ValueError, KeyError, TypeError, httpx2.StreamError):
            told = orjson.loads(response.content[:_MAX_ERROR_BYTES])["error"]
            return _failed(request, int(told["code"]), str(told["message"]), told.get("data"))
        reason = f"it answered with the HTTP status {response.status_code}"
        return _failed(request, REFUSED, reason, status=response.status_code)


class _Limited(httpx2.AsyncByteStream):
    """The body of an answer, bounded; a lost connection is told as such."""

    def __init__(self, stream: object, room: _Bucket, of_line: int) -> None:
        self._stream, self._room, self._of_line = cast("httpx2.AsyncByteStream", stream), room, of_line

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                if not self._room.take(len(part) + self._of_line * (part.count(b"\n") + part.count(b"\r"))):
                    raise httpx2.StreamError("it has more bytes than are taken; ask for less, or for a part of it")
                yield part
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"{CONNECTION_LOST}: {type(error).__name__}") from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def _failed(
    request: httpx2.Request, code: int, message: str, data: object = None, status: int = httpx2.codes.BAD_GATEWAY
) -> httpx2.Response:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return httpx2.Response(status, request=request, json={"jsonrpc": "2.0", "id": None, "error": error})
