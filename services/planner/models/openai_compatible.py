"""Models behind OpenAI's protocol, asked directly over HTTP.

Rule 1: one request per call. Retries and fallbacks are decided by the run.
Rule 2: connections are kept: the reply is read to its end, and one that is left early is closed at once.
Rule 3: the size of a line and of a reply is limited after decompression. No redirect is followed.
Rule 4: a provider's error text is never shown or logged: it can hold prompts, keys and image bytes.
Rule 5: a connection on which the server has sent anything between two replies is not used again. aiohttp would read it
as the reply to the next request, which may be another run's. One that breaks before it brings a reply is replaced, and
the request sent again: the server had closed it, being idle, while the request was on its way.
Rule 6: proxies come from the environment, credentials never do: aiohttp's `trust_env` would also send those of
`~/.netrc`.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from itertools import groupby
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from services.planner.conversation.encoding import encoded
from services.planner.models import errors, limits, wire
from services.planner.models.errors import ModelFailed
from services.planner.models.openai_reply import ReplyReader, error_in, failure_of
from services.planner.models.providers import Endpoint, Endpoints, cost_usd, known_model, provider_of
from services.planner.models.types import Delta, ModelRequest, Reply
from services.runtime import exact_json

_FIRST_REDIRECT_STATUS, _FIRST_ERROR_STATUS = 300, 400
MAX_KNOWN_SERVERS = 256
CONNECT_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 15.0
"""An idle connection is closed after this time, before most servers close it."""
READ_BUFFER_BYTES = 1 << 18
BYTES_BETWEEN_TURNS = 1 << 15
"""Read of a reply before the event loop runs other tasks."""
MAX_BYTES_AT_ONCE = 1 << 18
"""A longer body is sent in pieces, so that the event loop is free in between."""
_is_kept: ContextVar[bool] = ContextVar("is_kept", default=False)
"""Whether the request of this task has a connection that was used before."""


@dataclass(frozen=True, slots=True)
class _Server:
    """Where a model is asked, and how."""

    endpoint: Endpoint
    headers: Mapping[str, str] = field(repr=False)
    proxy: str | None = field(repr=False)


class _Connector(aiohttp.TCPConnector):
    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                _is_kept.set(True)
                return connection
            connection.close()
        _is_kept.set(False)
        return None


class OpenAICompatibleModel:
    """Every model whose endpoint `endpoints` knows."""

    def __init__(self, endpoints: Endpoints, bounds: limits.Limits = limits.Limits()) -> None:  # noqa: B008, frozen
        self._endpoints = endpoints
        self._limits = bounds
        self._session: aiohttp.ClientSession | None = None
        self._server = lru_cache(MAX_KNOWN_SERVERS)(self._server_of)

    def _server_of(self, model: str) -> _Server:
        endpoint = self._endpoints.of(model)
        headers = {"content-type": "application/json", "accept-encoding": limits.IDENTITY}
        if endpoint.key is not None:
            headers["authorization"] = f"Bearer {endpoint.key}"
        return _Server(endpoint, headers, proxy_of(endpoint.url))

    async def aclose(self) -> None:
        """Close the connections that are kept open for further requests."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed."""
        server = self._server(request.model)
        reader = ReplyReader(request.model)
        failure: ModelFailed | None = None
        response: aiohttp.ClientResponse | None = None
        timeouts = limits.ReplyTimeouts(request)
        try:
            response = await timeouts.wait(self._post(server, request))
            if response.status >= _FIRST_REDIRECT_STATUS:
                failure = await timeouts.wait(self._refusal(request.model, response))
            else:
                async with aclosing(self._deltas(request.model, response, reader, timeouts)) as deltas:
                    async for delta in deltas:
                        yield delta
                if reader.error is not None:
                    failure = failure_of(request.model, None, {}, reader.error, after_output=reader.begun)
                else:
                    failure = reader.failure(reader.finish_reason, response.content_type, reader.beginning)
        except ModelFailed as error:
            failure = error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = _of_transport(request.model, error)
        finally:
            if response is not None:
                response.close()
        # Raised outside the handler, so that an exception with the provider's text is not chained to this one.
        if failure is not None:
            failure.after_output = reader.begun
            raise failure
        usage = reader.usage or wire.estimate(request.messages, reader.text, reader.reasoning)
        usage = usage.model_copy(update={"cost_usd": cost_usd(request.model, usage)})
        yield reader.reply(usage, reader.finish_reason, is_ended=reader.ended)

    async def _post(self, server: _Server, request: ModelRequest) -> aiohttp.ClientResponse:
        if self._session is None:  # Without a limit of connections or of total time.
            context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=context),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_BUFFER_BYTES,
            )
        body = body_of(request, server.endpoint)
        for is_last in (False, True):
            try:
                return await self._session.post(
                    server.endpoint.url,
                    data=body if len(body) <= MAX_BYTES_AT_ONCE else BytesIO(body),
                    headers=server.headers,
                    allow_redirects=False,
                    proxy=server.proxy,
                )
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                if is_last or not _is_kept.get():
                    raise
        raise AssertionError

    async def _refusal(self, model: str, response: aiohttp.ClientResponse) -> ModelFailed:
        status, headers = response.status, {name.lower(): value for name, value in response.headers.items()}
        if status < _FIRST_ERROR_STATUS:
            return errors.failure(errors.REDIRECTED, model, str(status), status=status)
        body = b""
        # An error that is too long or cannot be unpacked is still an error with this status.
        with suppress(limits.TooMuch):
            async for piece in self._pieces(model, response, self._limits.error):
                body += piece
        return failure_of(model, status, headers, error_in(body))

    async def _deltas(
        self, model: str, response: aiohttp.ClientResponse, reader: ReplyReader, timeouts: limits.ReplyTimeouts
    ) -> AsyncGenerator[Delta, None]:
        # A completion that is sent whole is one line.
        is_whole = response.content_type == "application/json"
        lines = limits.WholeLines(model, self._limits.reply if is_whole else self._limits.line)
        async with aclosing(self._pieces(model, response, self._limits.reply)) as pieces:
            while not reader.ended and reader.error is None:
                piece = await timeouts.wait(anext(pieces, None))
                whole = [lines.rest()] if piece is None else lines.feed(piece)
                for delta in _joined([delta for line in whole for delta in reader.read_line(line)]):
                    yield delta
                if piece is None:
                    break
        for delta in reader.end():
            yield delta
        if reader.ended and not response.content.at_eof():
            # What follows is read, so that the connection can be used again.
            with suppress(TimeoutError, aiohttp.ClientError):
                async with asyncio.timeout(limits.REST_TIMEOUT_S):
                    while not response.content.at_eof():
                        if len(await response.content.readany()) > limits.MAX_REST_BYTES:
                            return

    async def _pieces(self, model: str, response: aiohttp.ClientResponse, limit: int) -> AsyncGenerator[bytes, None]:
        if (response.content_length or 0) > limit:
            raise limits.too_long(model, limit)
        unpacker = limits.Unpacker(model, limit, response.headers.get("content-encoding", ""))
        count = 0
        async for data in response.content.iter_any():
            for piece in unpacker.feed(data):
                count += len(piece)
                if count > BYTES_BETWEEN_TURNS:  # What has already arrived is read without a pause.
                    count = 0
                    await asyncio.sleep(0)
                yield piece


def body_of(request: ModelRequest, endpoint: Endpoint) -> bytes:
    """Return the body of a chat completion, with the messages last. What is not set is not sent."""
    # OpenAI's reasoning models refuse `max_tokens`, others know only that.
    known = known_model(request.model) if provider_of(request.model) == "openai" else None
    output_limit = "max_completion_tokens" if known is not None and known.reasoning else "max_tokens"
    fields = {
        "model": endpoint.model,
        "stream": True,
        "stream_options": {"include_usage": True} if request.asks_usage else None,
        # Most servers refuse a reasoning effort for a model without reasoning.
        "reasoning_effort": request.reasoning_effort if endpoint.reasons else None,
        "response_format": request.response_format,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        output_limit: request.max_tokens,
    }
    head = exact_json.dumps({name: value for name, value in fields.items() if value is not None})
    messages = [*map(encoded, wire.pieces_for(request.model, request.messages))]
    messages[0] = b'"messages":[' + messages[0]
    messages[-1] += b"]}"
    return b",".join([head.removesuffix(b"}"), *messages])  # A history of megabytes is copied once.


def _joined(deltas: list[Delta]) -> Iterator[Delta]:
    """Join the neighbouring deltas of one read that are text alone, or reasoning alone."""
    for kind, same in groupby(deltas, lambda delta: (bool(delta.text), bool(delta.reasoning))):
        parts = list(same)
        if kind == (True, False):
            yield Delta("".join(part.text for part in parts))
        elif kind == (False, True):
            yield Delta(reasoning="".join(part.reasoning for part in parts))
        else:
            yield from parts


def _of_transport(model: str, error: BaseException) -> ModelFailed:
    label = type(error).__name__
    if isinstance(error, aiohttp.InvalidURL):
        return errors.failure(errors.ADDRESS_INVALID, model)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return errors.failure(errors.UNREACHABLE, model, label)
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        reason = f"the connection to {model} broke before its reply was complete ({label})"
        return ModelFailed("model_failed", reason, retryable=True)
    return errors.failure(errors.UNSPECIFIED, model, label)


def proxy_of(url: str) -> str | None:
    """Return the proxy for an address, as HTTP_PROXY, HTTPS_PROXY and NO_PROXY say."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
