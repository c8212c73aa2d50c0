"""Limits the size of providers' replies in the transports of httpx, which all replies pass.

LiteLLM creates its HTTP clients in several ways, one of them inside OpenAI's library; each of them uses a transport of
httpx. The transports are wrapped, for requests inside an `Exchange` only; other requests of the process are not
affected.

Rule 1: requests ask for uncompressed replies. A compressed reply is decompressed here (`byte_limits`).
Rule 2: no redirect is followed: a prompt goes only to the address that the deployment names.
Rule 3: the event loop runs other tasks between the parts of a reply, however fast they arrive.
Rule 4: a synchronous request on the event loop is refused. LiteLLM makes some, to query Ollama or to log in; it
receives a connection error and goes on without. In its threads such requests are allowed.
Rule 5: no request is sent twice. LiteLLM and its clients repeat some after a refusal or a lost connection; here the
second one fails, and `run.failures` decides.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

import httpx
from httpcore._async.http11 import AsyncHTTP11Connection

from services.planner.models import errors, litellm_errors
from services.planner.models.byte_limits import IDENTITY, MAX_REST_BYTES, Bounded, ErrorBody, Limits, TooMuch
from services.planner.models.timeouts import REST_TIMEOUT_S

T = TypeVar("T")
_FIRST_ERROR_STATUS = 400
_PART_BYTES, _PART_LINES = 8192, 4
"""What a reader gets before other tasks run: one or two milliseconds of LiteLLM's work."""
_READ_BYTES = 8192
"""Read from a connection at once. httpx parses all of it without a pause, even a thousand chunks."""
_REPLACED = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})


class Exchange:
    """The requests of one attempt to get a reply.

    Attributes:
        failure: the fault of the provider's reply. LiteLLM wraps it in an error of its own.
        requests: number of requests sent.
        page: content type and first bytes of an HTML page that came instead of a completion.
    """

    def __init__(self, model: str, limits: Limits) -> None:
        self.model = model
        self.limits = limits
        self.failure: errors.ModelFailed | None = None
        self.requests = 0
        self.page = "", b""
        self._sent: set[tuple[str, str]] = set()
        self._refusal: _Refused | None = None
        self._open: list[_Reply] = []

    def opened(self, reply: "_Reply") -> "_Reply":
        """Register a reply, to close it at the end: LiteLLM leaves broken streams to the garbage collector."""
        self._open.append(reply)
        return reply

    async def read_rest(self) -> None:
        """Read what is left of a reply that has ended, so that its connection can be used again."""
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(REST_TIMEOUT_S):
                for reply in self._open:
                    await reply.read_rest()

    async def aclose(self) -> None:
        """Close what is still open."""
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
                self.failure = litellm_errors.failure_of(self._refusal, self.model)
            raise httpx.TransportError("a request is not repeated here", request=request)
        self._sent.add(key)
        self.requests += 1
        request.headers["accept-encoding"] = IDENTITY
        return request

    def refused(self, response: httpx.Response) -> None:
        """Keep the fault of the provider's refusal."""
        self._refusal = _Refused(response)

    def out_of_bounds(self, failure: errors.ModelFailed, request: httpx.Request) -> httpx.TransportError:
        """Store the failure; return the error to raise towards LiteLLM."""
        self.failure = failure
        return httpx.TransportError("out of bounds", request=request)

    def check(self, response: httpx.Response, request: httpx.Request) -> None:
        """Raise if the response is a redirect."""
        if response.has_redirect_location:
            redirected = errors.failure(errors.REDIRECTED, self.model, str(response.status_code))
            raise self.out_of_bounds(redirected, request)

    def bounded(self, response: httpx.Response) -> Bounded:
        """Return the limiter of a reply. Raises TooMuch."""
        content_type = response.headers.get("content-type", "")
        self.page = content_type, b""
        return Bounded(self.model, self.limits, _encoding(response), content_type)

    def passed_on(self, part: bytes) -> bytes:
        """Return a part of a reply. The beginning of a page is kept."""
        content_type, beginning = self.page
        if content_type.startswith("text/html") and len(beginning) < errors.MAX_BEGINNING_BYTES:
            self.page = content_type, beginning + part
        return part

    def error(self, response: httpx.Response) -> ErrorBody:
        """Return the limiter of an error's body."""
        return ErrorBody(self.model, self.limits.error, _encoding(response))


class _Refused(Exception):
    """A provider's refusal, as `litellm_errors` reads it."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.status_code = response.status_code
        self.response = response


_EXCHANGE: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


class _BoundedReply:
    """The bytes of a reply, within the limits."""

    def __init__(self, exchange: Exchange, response: httpx.Response, request: httpx.Request) -> None:
        self._exchange = exchange
        self._inner: Any = response.stream
        self._bounded = exchange.bounded(response)
        self._request = request


class _Reply(_BoundedReply, httpx.AsyncByteStream):
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
            if count > MAX_REST_BYTES:
                return

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._received:
                for part in _together(self._bounded.feed(data)):
                    if part:
                        self._has_ended = part.rstrip().endswith(b"[DONE]")
                        yield self._exchange.passed_on(part)
                    await asyncio.sleep(0)
                await asyncio.sleep(0)  # Reading HTTP chunks that have already arrived does not yield to other tasks.
        except TooMuch as failure:
            raise self._exchange.out_of_bounds(failure, self._request) from None
        yield self._exchange.passed_on(self._bounded.end())

    async def aclose(self) -> None:
        if self._has_ended:  # OpenAI's library closes the reply here, before the end of its body.
            await self._exchange.read_rest()
        await self._inner.aclose()


class _PlainReply(_BoundedReply, httpx.SyncByteStream):
    """For synchronous clients."""

    def __iter__(self) -> Iterator[bytes]:
        try:
            for data in self._inner:
                yield from self._bounded.feed(data)
        except TooMuch as failure:
            raise self._exchange.out_of_bounds(failure, self._request) from None
        yield self._bounded.end()

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
            exchange.check(response, request)
            if response.status_code < _FIRST_ERROR_STATUS:
                return _replaced(response, stream=exchange.opened(_Reply(exchange, response, request)))
            exchange.refused(response)
            error = exchange.error(response)
            stream: Any = response.stream
            async for data in stream:
                if not error.take(data):
                    break
        except TooMuch as failure:
            await response.aclose()
            raise exchange.out_of_bounds(failure, request) from None
        except BaseException:
            await response.aclose()
            raise
        await response.aclose()
        return _replaced(response, content=error.short())

    handle.bounds_replies = True  # type: ignore[attr-defined]
    return handle


def _plainly_bounding(
    send: Callable[[Any, httpx.Request], httpx.Response],
) -> Callable[[Any, httpx.Request], httpx.Response]:
    def handle(transport: Any, request: httpx.Request) -> httpx.Response:
        exchange = _EXCHANGE.get()
        if exchange is None:
            return send(transport, request)
        if _is_loop():
            raise httpx.ConnectError("the event loop does not wait for it", request=request)
        response = send(transport, exchange.begin(request))
        try:
            exchange.check(response, request)
            if response.status_code < _FIRST_ERROR_STATUS:
                return _replaced(response, stream=_PlainReply(exchange, response, request))
            exchange.refused(response)
            error = exchange.error(response)
            stream: Any = response.stream
            for data in stream:
                if not error.take(data):
                    break
        except TooMuch as failure:
            response.close()
            raise exchange.out_of_bounds(failure, request) from None
        except BaseException:
            response.close()
            raise
        response.close()
        return _replaced(response, content=error.short())

    return handle


def _is_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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


def _encoding(response: httpx.Response) -> str:
    return str(response.headers.get("content-encoding", IDENTITY))


def _replaced(response: httpx.Response, **body: Any) -> httpx.Response:
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _REPLACED]
    return httpx.Response(response.status_code, headers=headers, extensions=response.extensions, **body)
