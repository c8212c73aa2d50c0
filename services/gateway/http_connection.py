"""One HTTP connection: limits that uvicorn leaves open. They apply before any route is reached.

Rule 1: the head of a request arrives within `head_s`, or the connection is closed. Bodies have limits of their own
(`request_body`, `uploads`).
Rule 2: a client is disconnected when it accepts no byte for `stalled_s` although bytes wait for it. At most one write
waits. A client that followed a run returns with its last event id.
Rule 3: input that is not HTTP gets a problem, and so does a request that states its length twice: if two servers count
differently, a part of its body becomes somebody else's request (RFC 9112 6.1).
Rule 4: a body in tiny chunks is refused. Each chunk takes some 50 µs, however short it is, and all chunks that have
arrived are parsed without a pause, before the client's key is checked.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from .errors import BadRequest, Problem, RequestTooSlow
from .settings import GatewaySettings

logger = structlog.get_logger(__name__)

_MAX_HEAD_BYTES = 64 << 10
_READ_BYTES = 16 << 10
"""Read at once. h11 measures a head only while a part of it is missing."""
_MIN_MEAN_CHUNK_BYTES = 64
_FREE_CHUNKS = 1000
"""Chunks of any size, before the mean counts."""
_VERSIONS = frozenset({b"1.0", b"1.1"})
_LENGTH_HEADERS = frozenset({b"content-length", b"transfer-encoding"})


class _StrictParser(h11.Connection):
    """Parses requests more strictly than h11. `refusal`: why one of our rules refused a request."""

    refusal: str | None = None
    _chunks = 0
    _body_bytes = 0

    def next_event(self) -> Any:
        """Return the next part of a request. Raises h11.RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks += 1
            self._body_bytes += len(event.data)
            if self._chunks > _FREE_CHUNKS + self._body_bytes // _MIN_MEAN_CHUNK_BYTES:
                self.refusal = (
                    f"The chunks of a body have {_MIN_MEAN_CHUNK_BYTES} bytes or more, "
                    f"but for the first {_FREE_CHUNKS}."
                )
        elif isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            if {name for name, _ in event.headers} >= _LENGTH_HEADERS:
                self.refusal = "A request has Content-Length or Transfer-Encoding, not both."
            elif event.http_version not in _VERSIONS:
                self.refusal = "This is HTTP/1.1; there is no such version."
        if self.refusal:
            raise h11.RemoteProtocolError(self.refusal)
        return event


class _Timer:
    """Calls a function once, after `after_s` seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, after_s: float, call: Callable[[], None]) -> None:
        self._loop = loop
        self._after_s = after_s
        self._call = call
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
        self._call()


class HttpConnection(H11Protocol):
    """uvicorn's protocol with the limits above."""

    def __init__(self, *args: Any, head_s: float, stalled_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = self._parser = _StrictParser(h11.SERVER, _MAX_HEAD_BYTES)
        self._head_s = head_s
        self._head_timer = _Timer(self.loop, head_s, self._on_slow_head)
        self._stall_timer = _Timer(self.loop, stalled_s, self._on_stall)
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the first head."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        super().connection_lost(exc)
        self._head_timer.stop()
        self._stall_timer.stop()

    def data_received(self, data: bytes) -> None:
        """Parse in small parts."""
        for start in range(0, len(data), _READ_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + _READ_BYTES])
        self._watch_head()

    def _watch_head(self) -> None:
        """Limit the time until the next request, and the time in which the rest of an answered one arrives."""
        cycle: RequestResponseCycle | None = self.cycle
        is_answering = cycle is not None and not cycle.response_complete
        if is_answering or self.conn.their_state is h11.SEND_BODY:
            self._head_timer.stop()
        if not is_answering and not self.transport.is_closing():
            self._head_timer.start()

    def _on_slow_head(self) -> None:
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(RequestTooSlow(self._head_s))
        self._close()

    def send_400_response(self, _msg: str) -> None:
        """Answer input that cannot be parsed."""
        self._refuse(BadRequest(self._parser.refusal))
        self._close()

    def _refuse(self, problem: Problem) -> None:
        """Send a problem, unless a response has begun, which it would corrupt."""
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        answer = problem.response()
        events = (
            h11.Response(status_code=answer.status_code, headers=[*answer.raw_headers, (b"connection", b"close")]),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))

    def _close(self) -> None:
        """Close; a client that does not read the rest cannot keep the connection open."""
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
        """Limit the time in which the client reads a last response."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reading()

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


def connection_class(settings: GatewaySettings) -> Any:
    """Return a factory of connections, as uvicorn takes it in place of a class."""
    return partial(HttpConnection, head_s=settings.request_head_s, stalled_s=settings.stalled_client_s)
