"""Limits the size of providers' replies in the transports of httpx, which all replies pass.

LiteLLM creates its HTTP clients in several ways, one of them inside OpenAI's library; each of them uses a transport of
httpx. The transports are wrapped, for requests inside an `Exchange` only; other requests of the process are not
affected.

Rule 1: requests ask for uncompressed replies. A compressed reply is decompressed here (`limits`).
Rule 2: no redirect is followed: a prompt goes only to the address that the deployment names.
Rule 3: the event loop runs other tasks between the parts of a reply, however fast they arrive.
Rule 4: a synchronous request on the event loop is refused. LiteLLM makes some, to query Ollama or to log in; it
receives a connection error and goes on without. In its threads such requests are allowed.
Rule 5: no request is sent twice. LiteLLM and its clients repeat some after a refusal or a lost connection; here the
second one fails, and `run.turn.decide` decides.
Rule 6: of an error, LiteLLM receives the beginning: it searches the text with some dozens of regular expressions.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

import httpx
import orjson
from httpcore._async.http11 import AsyncHTTP11Connection

from services.planner.models import errors, limits

T = TypeVar("T")
MAX_ERROR_BYTES = 4096
"""What LiteLLM receives of an error's body."""
MIN_LINE_BYTES = 32
"""What a line at least counts towards the limit of a reply."""
MAX_PLAIN_LINE_BYTES = 1 << 14
"""Of a longer event, what nobody reads is left out."""
MAX_LABEL_CHARACTERS = 256
"""Kept of a text at the top of a long event: the name of a model, an id."""
MAX_CALLS_IN_EVENT = 200
"""More than a reply may have."""
_FIRST_ERROR_STATUS = 400
_PART_BYTES, _PART_LINES = 8192, 4
"""What a reader gets before other tasks run: one or two milliseconds of LiteLLM's work."""
_READ_BYTES = 8192
"""Read from a connection at once. httpx parses all of it without a pause, even a thousand chunks."""
_REPLACED = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
_ALTERNATIVES = frozenset({"choices", "candidates"})
"""Fields with alternative replies, of which the first is read."""
_BINARY = "application/vnd.amazon.eventstream"


class Exchange:
    """The requests of one attempt to get a reply.

    Attributes:
        failure: the fault of the provider's reply. LiteLLM wraps it in an error of its own.
        requests: number of requests sent.
        page: content type and first bytes of an HTML page that came instead of a completion.
    """

    def __init__(self, model: str, bounds: limits.Limits) -> None:
        self.model = model
        self.bounds = bounds
        self.failure: errors.ModelFailed | None = None
        self.requests = 0
        self.page = "", b""
        self._sent: set[tuple[str, str]] = set()
        self._refusal: _Refused | None = None
        self._open: list[_Reply] = []

    async def read_rest(self) -> None:
        """Read what is left of a reply that has ended, so that its connection can be used again."""
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(limits.REST_TIMEOUT_S):
                for reply in self._open:
                    await reply.read_rest()

    async def aclose(self) -> None:
        """Close the replies that are still open: LiteLLM leaves broken streams to the garbage collector."""
        while self._open:
            await self._open.pop().aclose()

    async def within(self, awaitable: Awaitable[T]) -> T:
        """Await it. Its requests belong to this exchange."""
        with self.current():
            return await awaitable

    @contextmanager
    def current(self) -> Iterator[None]:
        """Requests inside the block belong to this exchange."""
        token = _EXCHANGE.set(self)
        try:
            yield
        finally:
            _EXCHANGE.reset(token)

    def begin(self, request: httpx.Request) -> httpx.Request:
        """Count a request, and make it ask for an uncompressed reply. Raises if it was sent before."""
        key = (request.method, str(request.url))
        if key in self._sent and request.method == "POST":
            if self._refusal is not None:
                self.failure = errors.failure_of(self._refusal, self.model)
            raise httpx.TransportError("a request is not repeated here", request=request)
        self._sent.add(key)
        self.requests += 1
        request.headers["accept-encoding"] = limits.IDENTITY
        return request

    def out_of_bounds(self, failure: errors.ModelFailed, request: httpx.Request) -> httpx.TransportError:
        """Store the failure; return the error to raise towards LiteLLM."""
        self.failure = failure
        return httpx.TransportError("out of bounds", request=request)

    def passed_on(self, part: bytes) -> bytes:
        """Return a part of a reply. The beginning of a page is kept."""
        content_type, beginning = self.page
        if content_type.startswith("text/html") and len(beginning) < errors.MAX_BEGINNING_BYTES:
            self.page = content_type, beginning + part
        return part

    def bounded(
        self, response: httpx.Response, request: httpx.Request, stream: type["_Reply | _PlainReply"]
    ) -> httpx.Response:
        """Return a response whose body is limited. Raises for a redirect, and for an encoding that is not known."""
        if response.has_redirect_location:
            redirected = errors.failure(errors.REDIRECTED, self.model, str(response.status_code))
            raise self.out_of_bounds(redirected, request)
        if response.status_code >= _FIRST_ERROR_STATUS:
            self._refusal = _Refused(response)
        try:
            body = stream(self, response, request)
        except limits.TooMuch as failure:
            raise self.out_of_bounds(failure, request) from None
        if isinstance(body, _Reply):
            self._open.append(body)
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _REPLACED]
        return httpx.Response(response.status_code, headers=headers, extensions=response.extensions, stream=body)


class _Refused(Exception):
    """A provider's refusal, as `errors.failure_of` reads it."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.status_code = response.status_code
        self.response = response


_EXCHANGE: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


class _Body:
    """What LiteLLM receives of a response: decompressed, within the limits, and of an error only the beginning.

    Of a long event, what nobody reads is left out: LiteLLM copies and checks every part of an event, several times.
    """

    def __init__(self, exchange: Exchange, response: httpx.Response, request: httpx.Request) -> None:
        self._exchange = exchange
        self._inner: Any = response.stream
        self._request = request
        headers, model, bounds = response.headers, exchange.model, exchange.bounds
        content_type = headers.get("content-type", "")
        encoding = headers.get("content-encoding", limits.IDENTITY)
        self._error_bytes = MAX_ERROR_BYTES if response.status_code >= _FIRST_ERROR_STATUS else None
        if self._error_bytes is None:
            exchange.page = content_type, b""
            self._unpacker: limits.Unpacker | None = limits.Unpacker(model, bounds.reply, encoding)
        else:
            with suppress(limits.TooMuch):  # An error that cannot be decompressed is dropped: its status is enough.
                self._unpacker = None
                self._unpacker = limits.Unpacker(model, bounds.error, encoding)
        is_binary = content_type.partition(";")[0].strip().lower() == _BINARY
        self._lines = None if is_binary else limits.WholeLines(model, bounds.line)
        self._left = bounds.reply

    def _passed_on(self, data: bytes) -> Iterator[bytes]:
        """Yield what is passed on of received bytes. Raises TooMuch."""
        if self._error_bytes is not None:
            with suppress(limits.TooMuch):
                for piece in self._unpacker.feed(data) if self._unpacker else ():
                    yield piece[: self._error_bytes]
                    self._error_bytes -= min(len(piece), self._error_bytes)
                return
            self._error_bytes = 0
        elif self._unpacker is not None:
            for piece in self._unpacker.feed(data):
                yield from [piece] if self._lines is None else map(self._filtered, self._lines.feed(piece))

    def _has_enough(self) -> bool:
        """Whether the rest of an error need not be read."""
        return self._error_bytes is not None and (self._error_bytes == 0 or self._unpacker is None)

    def _end(self) -> bytes:
        return b"" if self._lines is None else self._filtered(self._lines.rest())

    def _filtered(self, line: bytes) -> bytes:
        self._left -= max(len(line), MIN_LINE_BYTES)
        if self._left < 0:
            raise limits.too_long(self._exchange.model, self._exchange.bounds.reply)
        return line if len(line) <= MAX_PLAIN_LINE_BYTES else _brief(line)


def _brief(line: bytes) -> bytes:
    """Return a long event without what nobody reads: long labels, choices after the first, calls beyond the limit."""
    event = None
    with suppress(orjson.JSONDecodeError):
        event = orjson.loads(line.removeprefix(b"data:"))
    if not isinstance(event, dict) or not line.startswith(b"data:"):
        return line
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = value[:MAX_LABEL_CHARACTERS]
        elif name in _ALTERNATIVES and isinstance(value, list):
            event[name] = value[:1]
    with suppress(LookupError, TypeError):
        del event["choices"][0]["delta"]["tool_calls"][MAX_CALLS_IN_EVENT:]
    return b"data: %s\n" % orjson.dumps(event)


class _Reply(_Body, httpx.AsyncByteStream):
    """For asynchronous clients."""

    def __init__(self, exchange: Exchange, response: httpx.Response, request: httpx.Request) -> None:
        super().__init__(exchange, response, request)
        self._received = aiter(self._inner)
        self._has_ended = False

    async def read_rest(self) -> None:
        """Read to the end, unless that is far away."""
        count = 0
        async for data in self._received:
            count += len(data)
            if count > limits.MAX_REST_BYTES:
                return

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange = self._exchange
        try:
            async for data in self._received:
                for part in _together(self._passed_on(data)):
                    if part:
                        self._has_ended = part.rstrip().endswith(b"[DONE]")
                        yield exchange.passed_on(part)
                    await asyncio.sleep(0)
                if self._has_enough():
                    return
                await asyncio.sleep(0)  # Reading HTTP chunks that have already arrived does not yield to other tasks.
            yield exchange.passed_on(self._end())
        except limits.TooMuch as failure:
            raise exchange.out_of_bounds(failure, self._request) from None

    async def aclose(self) -> None:
        if self._has_ended:  # OpenAI's library closes the reply here, before the end of its body.
            await self._exchange.read_rest()
        await self._inner.aclose()


class _PlainReply(_Body, httpx.SyncByteStream):
    """For synchronous clients."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            for data in self._inner:
                yield from self._passed_on(data)
                if self._has_enough():
                    return
            yield self._end()
        except limits.TooMuch as failure:
            raise self._exchange.out_of_bounds(failure, self._request) from None

    def close(self) -> None:
        self._inner.close()


def bound_replies() -> None:
    """Wrap the transports of httpx. Idempotent."""
    if getattr(httpx.AsyncHTTPTransport.handle_async_request, "bounds_replies", False):
        return
    AsyncHTTP11Connection.READ_NUM_BYTES = _READ_BYTES
    # By `setattr`, since mypy refuses an assignment to a method.
    for transport, method, bounding in (
        (httpx.AsyncHTTPTransport, "handle_async_request", _bounding),
        (httpx.HTTPTransport, "handle_request", _plainly_bounding),
    ):
        setattr(transport, method, bounding(getattr(transport, method)))


def _bounding(
    send: Callable[[Any, httpx.Request], Awaitable[httpx.Response]],
) -> Callable[[Any, httpx.Request], Awaitable[httpx.Response]]:
    async def handle(transport: Any, request: httpx.Request) -> httpx.Response:
        exchange = _EXCHANGE.get()
        if exchange is None:
            return await send(transport, request)
        response = await send(transport, exchange.begin(request))
        try:
            return exchange.bounded(response, request, _Reply)
        except BaseException:
            await response.aclose()
            raise

    handle.bounds_replies = True  # type: ignore[attr-defined]
    return handle


def _plainly_bounding(
    send: Callable[[Any, httpx.Request], httpx.Response],
) -> Callable[[Any, httpx.Request], httpx.Response]:
    def handle(transport: Any, request: httpx.Request) -> httpx.Response:
        exchange = _EXCHANGE.get()
        if exchange is None:
            return send(transport, request)
        with suppress(RuntimeError):  # Outside of an event loop.
            asyncio.get_running_loop()
            raise httpx.ConnectError("the event loop does not wait for it", request=request)
        response = send(transport, exchange.begin(request))
        try:
            return exchange.bounded(response, request, _PlainReply)
        except BaseException:
            response.close()
            raise

    return handle


def _together(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Join lines into parts of some KB."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= _PART_BYTES or len(part) >= _PART_LINES:
            yield b"".join(part)
            part.clear()
            size = 0
    if part:
        yield b"".join(part)
