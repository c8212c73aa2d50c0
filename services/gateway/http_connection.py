"""One connection of a client: what uvicorn leaves open. No route is reached before this lets a request through.

Rule 1: a request's head comes within `head_s`, or the connection is closed; bodies have limits of their own (`bodies`,
`uploads`).
Rule 2: a client that does not read is cut off when `stalled_s` have passed and nothing of what waits for it went out.
All that waits is what one write brought. Whoever watched a run comes back with the last id.
Rule 3: what is no HTTP gets a problem, and so does a request whose length is said twice: between two servers that count
differently, a part of its body becomes a request of somebody else (RFC 9112 6.1).
Rule 4: a body does not come in crumbs. Each chunk costs some 50 µs however short it is, all that have come are read in
one go, and nobody has been asked for a key by then.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from services.gateway.errors import BadRequest, Problem, RequestTooSlow
from services.gateway.settings import GatewaySettings

logger = structlog.get_logger(__name__)

_HEAD_BYTES = 64 << 10
_READ_BYTES = 16 << 10
"""So much is read at once, since a head is measured only where some of it is still to come."""
_LEAST_CHUNK_BYTES, _FREE_CHUNKS = 64, 1000
"""Chunks of a body are so large on average, but for the first ones."""
_VERSIONS = frozenset({b"1.0", b"1.1"})
_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})


class _Requests(h11.Connection):
    """Reads requests, more strictly than h11 does. `refusal` says why one was refused, where that is our rule."""

    refusal: str | None = None
    _chunks = 0
    _body_bytes = 0

    def next_event(self) -> Any:
        """Return what comes next. Raises h11.RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks += 1
            self._body_bytes += len(event.data)
            if self._chunks > _FREE_CHUNKS + self._body_bytes // _LEAST_CHUNK_BYTES:
                self.refusal = (
                    f"The chunks of a body have {_LEAST_CHUNK_BYTES} bytes or more, but for the first {_FREE_CHUNKS}."
                )
        elif isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            if {name for name, _ in event.headers} >= _LENGTHS:
                self.refusal = "A request has Content-Length or Transfer-Encoding, not both."
            elif event.http_version not in _VERSIONS:
                self.refusal = "This is HTTP/1.1; there is no such version."
        if self.refusal:
            raise h11.RemoteProtocolError(self.refusal)
        return event


class _Timer:
    """Calls once, after a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, after_s: float, call: Callable[[], None]) -> None:
        self._loop = loop
        self._after_s = after_s
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(self) -> None:
        """Begin, unless it runs already."""
        if self._handle is None:
            self._handle = self._loop.call_later(self._after_s, self._fire)

    def stop(self) -> None:
        """Do not call any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._call()


class Connection(H11Protocol):
    """uvicorn's connection, with limits."""

    def __init__(self, *uvicorns: Any, head_s: float, stalled_s: float, **more: Any) -> None:
        super().__init__(*uvicorns, **more)
        self.conn = self._requests = _Requests(h11.SERVER, _HEAD_BYTES)
        self._head_s = head_s
        self._head_timer = _Timer(self.loop, head_s, self._on_slow_head)
        self._stall_timer = _Timer(self.loop, stalled_s, self._on_stall)
        self._unread = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        self._head_timer.stop()
        self._stall_timer.stop()

    def data_received(self, data: bytes) -> None:
        """A client sends."""
        for start in range(0, len(data), _READ_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + _READ_BYTES])
        self._watch_head()

    def _watch_head(self) -> None:
        """See that a request comes, while none is being answered; of the rest of an answered one, that it goes on coming."""
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
        """Refuse what cannot be read as a request."""
        self._refuse(BadRequest(self._requests.refusal))
        self._close()

    def _refuse(self, problem: Problem) -> None:
        """Send a problem, unless an answer is under way, in whose middle nothing can be said."""
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
        """Close, and let nobody hold it open who does not read what is still to be sent."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._watch_reading()

    def timeout_keep_alive_handler(self) -> None:
        """No further request came."""
        super().timeout_keep_alive_handler()
        self._watch_reading()

    def on_response_complete(self) -> None:
        """All of a response has been handed over."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reading()

    def pause_writing(self) -> None:
        """More waits to be sent than the client takes."""
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stall_timer.stop()

    def _watch_reading(self) -> None:
        if not self._stall_timer.is_running:
            self._unread = self.transport.get_write_buffer_size()
            self._stall_timer.start()

    def _on_stall(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left < self._unread:
            self._watch_reading()
        else:
            logger.info("client_cut_off", reason="it does not read", unread_bytes=left)
            self.transport.abort()


def connections(settings: GatewaySettings) -> Any:
    """What makes the connections of a server: given to uvicorn in the place of its class."""
    return partial(Connection, head_s=settings.request_head_s, stalled_s=settings.stalled_client_s)
