"""The streams to a server: a process over its standard input and output, or streamable HTTP.

Rule 1: what a server sends is bounded: a message in bytes, all of it in messages per second. One large answer fails its
call and not the connection.
Rule 2: what a process writes that is no message is skipped and counted. Its standard error is drained from the first
moment, and the last lines are kept, for the log of this process at the level debug alone: they may name secrets.
Rule 3: a request over HTTP that fails says whether it was certainly not carried out (`NOT_DONE`), or may have been
(`LOST`).
"""

import asyncio
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import anyio
import httpx2
import orjson
from anyio.abc import ObjectReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)

from . import guard
from .config import McpServer, resolved
from .oauth import NoToken, Tokens

NOT_DONE, LOST, REFUSED = -31001, -31002, -31003
"""Codes of errors that are made here: of the connection, and of an answer that is no message."""
CONNECTION_LOST = "the connection was lost"
Streams = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]
_MAX_UNASKED, _MAX_UNASKED_PER_S = 10_000, 100
"""Messages that nobody asked for: so many may come at once, and so many a second."""
_OF_REQUEST = 10
"""A request of the server counts as so many, since each is answered."""
_MAX_STREAMED_PER_S = 1 << 20
"""Bytes of an event stream, beyond two messages at once."""
_USED = frozenset({"notifications/progress", "notifications/tools/list_changed"})
_MAX_LINES, _MAX_LINE_CHARACTERS = 10, 300
_EXIT_S, _IDLE_S = 5.0, 2.0
_FLOOD = "it was ended, since it sent too many messages that nobody asked for"
_ID = re.compile(rb'"id"\s*:\s*(\d{1,15})\b')
_HEAD_BYTES = 256
_MAX_ERROR_BYTES = 64 << 10


@dataclass(slots=True)
class Notes:
    """What is known of a server beside its messages. `errors`: the last lines of its standard error.

    `end`: how it ended.
    """

    errors: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_LINES))
    skipped: int = 0
    end: str = ""


@asynccontextmanager
async def streams_of(server: McpServer, notes: Notes) -> AsyncIterator[tuple["Received", WriteStream[SessionMessage]]]:
    """Return the streams to a server, while it is there. Raises OSError, ValueError and httpx2.HTTPError."""
    async with (_Process.started if server.command is not None else _over_http)(server, notes) as (received, to_send):
        yield Received(received, notes), to_send


@asynccontextmanager
async def _over_http(server: McpServer, _notes: Notes) -> AsyncIterator[Streams]:
    headers = httpx2.Headers({name: resolved(value) for name, value in server.headers.items()})
    headers["accept-encoding"] = "identity"  # A few bytes could be unpacked to any number.
    transport, timeout = _Bounded(server), httpx2.Timeout(30, read=server.timeout_s + 300)
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout) as client,
        streamable_http_client(
            str(server.url), http_client=client, max_sse_event_size=server.max_message_bytes
        ) as streams,
    ):
        yield streams


class Received(ObjectReceiveStream[SessionMessage | Exception]):
    """What a server sends, without what nobody uses. It ends where too much comes that nobody has asked for."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], notes: Notes) -> None:
        self._stream, self._notes = stream, notes
        self._room = _Bucket(_MAX_UNASKED, _MAX_UNASKED_PER_S)

    def expect(self) -> None:
        """Make room for an answer."""
        self._room.take(-1)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        while True:
            found = await self._stream.receive()
            message = found.message if isinstance(found, SessionMessage) else None
            self._room.take(_OF_REQUEST if isinstance(message, JSONRPCRequest) else 1)
            if self._room.is_empty:
                self._notes.end = _FLOOD
                raise anyio.EndOfStream
            if message is not None and (not isinstance(message, JSONRPCNotification) or message.method in _USED):
                return found

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()


class _Process:
    """One run of a server's command."""

    _is_closed = False
    """Its standard output was, and not by us."""

    def __init__(
        self, process: asyncio.subprocess.Process, lifeline: socket.socket, server: McpServer, notes: Notes
    ) -> None:
        self._process, self._lifeline, self._server, self._notes = process, lifeline, server, notes

    @classmethod
    @asynccontextmanager
    async def started(cls, server: McpServer, notes: Notes) -> AsyncIterator[Streams]:
        """Start it, and end it with all its children (`guard`)."""
        lifeline, kept = socket.socketpair()
        kept.setblocking(False)  # noqa: FBT003, it takes no name
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(Path(guard.__file__)), str(lifeline.fileno()),
                str(server.command), *server.args,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
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
        self = cls(process, kept, server, notes)
        sending, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_send, taken = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(work)
            for work in (self._read(sending), self._write(taken, sending), self._drain_errors())
        ]
        try:
            yield received, to_send
        finally:
            for stream in (sending, received, to_send, taken):
                stream.close()
            ending = asyncio.create_task(self._end(tasks))
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:  # It had begun to end when the tool runner stopped.
                await ending
                raise

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        """Close its standard input first; then the guard ends what is left, and last it is killed from here."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        is_asked = not await _has_ended(process, guard.GRACE_S)
        if self._is_closed and not is_asked:
            with suppress(OSError):
                self._notes.end = self._notes.end or self._lifeline.recv(_MAX_LINE_CHARACTERS).decode(errors="replace")
        self._lifeline.close()
        if is_asked:
            await _has_ended(process, 3 * guard.GRACE_S)
        with suppress(ProcessLookupError):  # Also where the guard itself was killed.
            os.killpg(process.pid, signal.SIGKILL)
        await _has_ended(process, _EXIT_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A process that has left the group may hold a pipe open, and only this closes our end of it.
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001

    async def _write(
        self,
        taken: MemoryObjectReceiveStream[SessionMessage],
        sending: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        stdin = self._process.stdin
        with suppress(OSError, anyio.ClosedResourceError):
            async for message in taken:
                if stdin is not None:
                    stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await stdin.drain()
        sending.close()  # It takes no more: the connection has ended for its readers too.

    async def _read(self, sending: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        stdout, line, size = self._process.stdout, bytearray(), 0
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            while stdout is not None and (chunk := await stdout.read(1 << 16)):
                *ends, rest = chunk.split(b"\n")
                for end in ends:
                    size += len(end)
                    line += end[: self._server.max_message_bytes - len(line)]
                    await sending.send(self._message(bytes(line), size))
                    line, size = bytearray(), 0
                size += len(rest)
                line += rest[: self._server.max_message_bytes - len(line)]
            self._is_closed = True
        sending.close()

    def _message(self, line: bytes, size: int) -> SessionMessage | Exception:
        if size > self._server.max_message_bytes:
            found = _ID.search(line[:_HEAD_BYTES])
            limit = f"the answer has {size:,} bytes, and at most {self._server.max_message_bytes:,} are taken"
            error = ErrorData(code=REFUSED, message=f"{limit}; ask for less, or for a part of it")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(found[1]) if found else None, error=error))
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            self._notes.skipped += bool(line.strip())
            return error

    async def _drain_errors(self) -> None:
        stderr, line = self._process.stderr, b""
        while stderr is not None and (chunk := await stderr.read(1 << 14)):
            *ends, line = (line + chunk).split(b"\n")
            self._notes.errors += [_shown(end) for end in ends[-_MAX_LINES:] if end.strip()]
            line = line[:_MAX_LINE_CHARACTERS]
        if line.strip():
            self._notes.errors.append(_shown(line))


class _Bucket:
    """So much at once, and for how long a second."""

    def __init__(self, capacity: float, per_s: float) -> None:
        self._capacity, self._per_s = capacity, per_s
        self._left, self._at = capacity, time.monotonic()

    @property
    def is_empty(self) -> bool:
        """Whether more was taken than there was."""
        return self._left < 0

    def take(self, amount: float) -> None:
        """Take some."""
        now = time.monotonic()
        self._left = min(self._capacity, self._left + (now - self._at) * self._per_s) - amount
        self._at = now


async def _has_ended(process: asyncio.subprocess.Process, wait_s: float) -> bool:
    try:
        async with asyncio.timeout(wait_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _shown(line: bytes) -> str:
    text = line[:_MAX_LINE_CHARACTERS].decode(errors="replace")
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


class _Bounded(httpx2.AsyncHTTPTransport):
    """HTTP that answers with an error of JSON-RPC wherever a request fails. It uses no proxy."""

    def __init__(self, server: McpServer) -> None:
        # Many servers close an idle connection after 5 s: a call that meets this end would be taken for lost.
        super().__init__(limits=httpx2.Limits(keepalive_expiry=_IDLE_S))
        self._max_bytes = server.max_message_bytes
        self._tokens = Tokens(server, super().handle_async_request) if server.oauth is not None else None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, with a token if the file asks for one. One that is refused is replaced once."""
        if request.method == "DELETE":  # The end of a session waits for nobody.
            request.extensions = {**request.extensions, "timeout": httpx2.Timeout(_EXIT_S).as_dict()}
        token = ""
        for is_last in (self._tokens is None, True):
            if self._tokens is not None:
                try:
                    token = await self._tokens.other_than(token)
                except NoToken as error:
                    return _failed(request, NOT_DONE, f"there is no token for it: {error}")
                request.headers["authorization"] = f"Bearer {token}"
            response = await self._sent(request)
            if is_last or response.status_code != httpx2.codes.UNAUTHORIZED:
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
        room = _Bucket(2 * self._max_bytes if is_stream else self._max_bytes, _MAX_STREAMED_PER_S if is_stream else 0)
        response.stream = _Limited(response.stream, room)
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
        return _failed(
            request, REFUSED, f"it answered with the HTTP status {response.status_code}", status=response.status_code
        )


class _Limited(httpx2.AsyncByteStream):
    """The body of an answer, bounded; a lost connection is told as such."""

    def __init__(self, stream: object, room: "_Bucket") -> None:
        self._stream, self._room = cast("httpx2.AsyncByteStream", stream), room

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                self._room.take(len(part))
                if self._room.is_empty:
                    raise httpx2.StreamError("it has more bytes than are taken; ask for less, or for a part of it")
                yield part
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"{CONNECTION_LOST}: {type(error).__name__}") from error

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()


def _failed(
    request: httpx2.Request, code: int, message: str, data: object = None, status: int = httpx2.codes.BAD_GATEWAY
) -> httpx2.Response:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return httpx2.Response(status, request=request, json={"jsonrpc": "2.0", "id": None, "error": error})
