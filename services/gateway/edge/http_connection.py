"""One HTTP connection: limits that uvicorn and llhttp leave open. They apply before any route is reached.

Rule 1: the head of a request arrives within `head_s` and has at most 64 KiB, or the connection is closed. Bodies have
limits of their own (`request_body`, `transfers`).
Rule 2: a client is disconnected when it accepts no byte for `stalled_s` although bytes wait for it. At most one write
waits. A client that followed a run returns with its last event id.
Rule 3: input that is not HTTP gets a problem, and so does a request whose length or host two servers could read
differently: a part of its body would become somebody else's request (RFC 9112 6.1).
Rule 4: a body in tiny chunks is refused, and so is one with more framing than content. Each chunk takes time, however
short it is, and all chunks that have arrived are parsed without a pause, before the client's key is checked.
Rule 5: one request at a time. What arrives before the last request is answered waits, up to 64 KiB. More than that is
dropped, as is a request that arrives in one piece with the end of another, and the connection is closed after the
answer. So a client cannot queue requests in this process.
Rule 6: a process holds a limited number of connections, fewer than the files that it may open. At the limit a new one
takes the place of the one that has been silent for longest, so probes of health get through. If all have sent the head
of a request, the new one is closed.
Rule 7: every answer says for which origin it is meant (`origins`).
"""

import asyncio
import resource
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, Literal
from weakref import WeakMethod

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from services.gateway.errors import BadRequest, Problem, RequestTooSlow
from services.gateway.settings import GatewaySettings

from .origins import Origins

logger = structlog.get_logger(__name__)

MAX_CONNECTIONS = 10_000
_FILES_FOR_CONNECTIONS = 0.9
"""Of the files that the process may open."""
_MAX_HEAD_BYTES = 64 << 10
_READ_BYTES = 16 << 10
"""Bytes of a head that are parsed at once. While a part of it is missing, its size is checked after each."""
_MAX_FRAMING_BYTES = 64 << 10
"""Of chunk sizes, chunk extensions and trailers, beyond as many bytes as the body has."""
_MIN_MEAN_CHUNK_BYTES = 64
_FREE_CHUNKS = 1000
"""Chunks of any size, before the mean counts."""
_MAX_WAITING_BYTES = 64 << 10
"""Of what a client sends before its last request is answered. It may have the whole answer already: one of known length
ends for the client before it ends here."""
_VERSIONS = frozenset({"1.0", "1.1"})
_BOTH_LENGTHS = "A request has Content-Length or Transfer-Encoding, not both."


class _Refused(Exception):
    """One of our rules refuses a request. The text says which."""


class _NotRead(Exception):
    """The bytes follow a request whose answer the client does not have yet."""


async def _send_without_chunks(cycle: RequestResponseCycle, message: Any) -> None:
    """Send a part of a response to HTTP/1.0, which has no chunks: the end of the connection ends the body."""
    cycle.chunked_encoding = False
    cycle.expected_content_length = len(message.get("body", b""))
    await RequestResponseCycle.send(cycle, message)


class _Timer:
    """Calls a method once, after `after_s` seconds, if its object still exists.

    A reference to it would be a cycle: a connection would stay until the next collection, hundreds of others with it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, after_s: float, call: Callable[[], None]) -> None:
        self._loop = loop
        self._after_s = after_s
        self._call = WeakMethod(call)
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(self) -> None:
        """Start, unless it is running."""
        if self._handle is None:
            self._handle = self._loop.call_later(self._after_s, self._fire)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        if (call := self._call()) is not None:
            call()


class HttpConnection(HttpToolsProtocol):
    """uvicorn's protocol with the limits above."""

    def __init__(
        self,
        *args: Any,
        head_s: float,
        stalled_s: float,
        origins: Origins,
        silent: dict["HttpConnection", None],
        **kwargs: Any,
    ) -> None:
        """`silent`: the connections of the process that wait for the head of a request, in their order."""
        super().__init__(*args, **kwargs)
        self._silent = silent
        self._origins = origins
        self._head_s = head_s
        self._head_timer = _Timer(self.loop, head_s, self._on_slow_head)
        self._stall_timer = _Timer(self.loop, stalled_s, self._on_stall)
        self._unread_bytes = 0
        self._phase: Literal["idle", "head", "body"] = "idle"
        """What of a request is arriving. idle: the last one is complete, if there was one."""
        self._ignores_input = False
        """Nothing more is read: the connection closes after the response that is being sent."""
        self._waiting = b""
        self._head_bytes = self._chunks = self._body_bytes = self._framed_bytes = 0

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the first head. At the limit, close another connection or this one."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._silent[self] = None
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self.connections) > min(
            MAX_CONNECTIONS, files * _FILES_FOR_CONNECTIONS if files > 0 else MAX_CONNECTIONS
        ):
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.close()
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers: each would keep the connection until it fires."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves it where the client has reset the connection.
        self._silent.pop(self, None)
        self._head_timer.stop()
        self._stall_timer.stop()

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived: a head in small parts, to measure it."""
        self._unset_keepalive_if_required()
        if self._is_answering and self._phase == "idle" and not self._ignores_input:
            self._waiting += data
            if len(self._waiting) > _MAX_WAITING_BYTES:
                self._stop_reading()
            return
        try:
            while data and not self._ignores_input:
                size = len(data) if self._phase == "body" else _READ_BYTES
                self._parse(data[:size])
                data = data[size:]
        except httptools.HttpParserError as error:
            reason = error.__context__
            if isinstance(reason, _NotRead):
                self._stop_reading()
            else:
                both = _BOTH_LENGTHS if "Transfer-Encoding" in str(error) else None
                self._end(BadRequest(str(reason) if isinstance(reason, _Refused) else both))
        self._watch_head()

    def _parse(self, data: bytes) -> None:
        if self._phase == "body":
            self._framed_bytes += len(data)
        else:
            self._head_bytes += len(data)
        rest: bytes | None = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        if rest is not None:
            self._parse_without_upgrade(rest)
        if self._phase != "body" and self._head_bytes > _MAX_HEAD_BYTES:
            self._end(BadRequest())
        elif self._framed_bytes > _MAX_FRAMING_BYTES + 2 * self._body_bytes:
            self._end(BadRequest("The chunk extensions and trailers of a body are not larger than its content."))

    def _stop_reading(self) -> None:
        self._ignores_input, self._waiting, self.cycle.keep_alive = True, b"", False

    def _parse_without_upgrade(self, rest: bytes) -> None:
        """Parse a head again, without its request for another protocol, for which llhttp skips the body."""
        head = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        lines = (b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"".join((head, *lines, b"\r\n", rest)))

    def on_message_begin(self) -> None:
        """A request begins. Raises _NotRead before the last one is answered."""
        if self._is_answering:
            raise _NotRead
        super().on_message_begin()
        self._head_timer.stop()
        self._phase = "head"

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers, which follow a body, are dropped."""
        if self._phase == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the head, and start the application. Raises _Refused."""
        version = self.parser.get_http_version()
        if self.parser.get_method() == b"CONNECT":
            raise _Refused("This is no proxy.")
        if self.parser.should_upgrade():
            return  # `_parse_without_upgrade` follows.
        if version not in _VERSIONS:
            raise _Refused("This is HTTP/1.1; there is no such version.")
        _check_head(version, self.headers)
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > _MAX_HEAD_BYTES:
            raise _Refused("The head of a request has at most 64 KiB.")
        self._phase = "body"
        self._silent.pop(self, None)
        super().on_headers_complete()
        about_origin = self._origins.answer_headers(self.scope["raw_path"], self.headers)
        self.cycle.default_headers = [*self.cycle.default_headers, *about_origin]
        if version == "1.0":
            self.cycle.send = MethodType(_send_without_chunks, self.cycle)  # type: ignore[method-assign]

    def on_body(self, body: bytes) -> None:
        """Count the chunks. Raises _Refused."""
        self._chunks += 1
        self._body_bytes += len(body)
        if self._chunks > _FREE_CHUNKS + self._body_bytes // _MIN_MEAN_CHUNK_BYTES:
            raise _Refused(
                f"The chunks of a body have {_MIN_MEAN_CHUNK_BYTES} bytes or more, but for the first {_FREE_CHUNKS}."
            )
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has arrived."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._phase = "idle"
        self._head_bytes = self._chunks = self._body_bytes = self._framed_bytes = 0
        self._head_timer.stop()

    def _watch_head(self) -> None:
        """Limit the time until the next request, and the time in which the rest of an answered one arrives."""
        if self._is_answering:
            self._head_timer.stop()
        elif not self.transport.is_closing():
            self._head_timer.start()
            if self._phase != "body":
                self._silent.setdefault(self)

    def _on_slow_head(self) -> None:
        self._end(RequestTooSlow(self._head_s) if self._phase == "head" else None)

    def _end(self, problem: Problem | None) -> None:
        """Close, with a problem unless a response has begun. A client that does not read cannot keep it open."""
        self._ignores_input = True
        if problem is not None and not (self._is_answering and self.cycle.response_started):
            answer = problem.response()
            path, asked = (b"", []) if self._phase == "idle" else (self.url.partition(b"?")[0], self.headers)
            about_origin = self._origins.answer_headers(path, asked)
            headers = (*answer.raw_headers, *about_origin, (b"connection", b"close"))
            lines = (b"%b: %b\r\n" % header for header in headers)
            self.transport.write(b"".join((STATUS_LINE[answer.status_code], *lines, b"\r\n", answer.body)))
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._watch_reading()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        super().timeout_keep_alive_handler()
        self._watch_reading()

    def on_response_complete(self) -> None:
        """Read what waits, or limit the time in which the client reads a last response."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reading()
        elif self._waiting:
            waiting, self._waiting = self._waiting, b""
            self.data_received(waiting)
        else:
            self._silent[self] = None

    def pause_writing(self) -> None:
        """The client reads more slowly than the gateway writes."""
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stall_timer.stop()

    def _watch_reading(self) -> None:
        if not self._stall_timer.is_running:
            self._unread_bytes = self.transport.get_write_buffer_size()
            self._stall_timer.start()

    def _on_stall(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread and unread < self._unread_bytes:
            self._watch_reading()
        else:
            logger.info("client_cut_off", reason="it does not read", unread_bytes=unread)
            self.transport.abort()


def _check_head(version: str, headers: list[tuple[bytes, bytes]]) -> None:
    """Raise _Refused for a request that another server could read otherwise."""
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise _Refused("A request has one Host.")
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and (codings != [b"chunked"] or version == "1.0"):
        raise _Refused("The only Transfer-Encoding is chunked, of HTTP/1.1.")


def connection_class(settings: GatewaySettings, origins: Origins) -> Any:
    """Return a factory of connections, as uvicorn takes it in place of a class."""
    silent: dict[HttpConnection, None] = {}
    head_s, stalled_s = settings.request_head_s, settings.stalled_client_s
    return partial(HttpConnection, head_s=head_s, stalled_s=stalled_s, origins=origins, silent=silent)
