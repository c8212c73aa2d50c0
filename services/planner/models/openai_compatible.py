"""Models behind OpenAI's protocol, asked directly over HTTP.

Rule 1: one request per call. Retries and fallbacks are decided by the run.
Rule 2: connections are kept: the reply is read to its end, and one that is left early is closed at once.
Rule 3: the size of a line and of a reply is limited after decompression. No redirect is followed.
Rule 4: a provider's error text is never shown or logged: it can hold prompts, keys and image bytes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO

import aiohttp

from services.planner.conversation.encoding import encoded
from services.planner.models import errors, wire
from services.planner.models.byte_limits import (
    IDENTITY,
    MAX_REST_BYTES,
    Limits,
    TooMuch,
    Unpacker,
    WholeLines,
    too_long,
)
from services.planner.models.errors import ModelFailed
from services.planner.models.http_session import open_session, proxy_of
from services.planner.models.model_table import cost_usd, known_model
from services.planner.models.openai_errors import error_in, failure_of
from services.planner.models.openai_reply import ReplyReader
from services.planner.models.providers import Endpoint, Endpoints, provider_of
from services.planner.models.timeouts import REST_TIMEOUT_S, ReplyTimeouts
from services.planner.models.types import Delta, ModelRequest, Reply
from services.runtime import exact_json

_FIRST_REDIRECT_STATUS, _FIRST_ERROR_STATUS = 300, 400


MAX_KNOWN_SERVERS = 256
MAX_BYTES_AT_ONCE = 1 << 18
"""A longer body is sent in pieces, so that the event loop is free in between."""


@dataclass(frozen=True, slots=True)
class _Server:
    """Where a model is asked, and how."""

    endpoint: Endpoint
    headers: Mapping[str, str] = field(repr=False)
    proxy: str | None = field(repr=False)


class OpenAICompatibleModel:
    """Every model whose endpoint `endpoints` knows."""

    def __init__(self, endpoints: Endpoints, limits: Limits = Limits()) -> None:  # noqa: B008, frozen
        self._endpoints = endpoints
        self._limits = limits
        self._session: aiohttp.ClientSession | None = None
        self._server = lru_cache(MAX_KNOWN_SERVERS)(self._find_server)

    def _find_server(self, model: str) -> _Server:
        endpoint = self._endpoints.of(model)
        headers = {"content-type": "application/json", "accept-encoding": IDENTITY}
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
        timeouts = ReplyTimeouts(request)
        try:
            response = await timeouts.wait(self._post(server, request))
            if response.status >= _FIRST_REDIRECT_STATUS:
                failure = await timeouts.wait(self._refusal(request.model, response))
            else:
                deltas = self._deltas(request.model, response, reader)
                while (delta := await timeouts.wait(anext(deltas, None))) is not None:
                    yield delta
                failure = _broken(request.model, response.content_type, reader)
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
        yield _reply(request, reader)

    async def _post(self, server: _Server, request: ModelRequest) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = open_session()
        body = body_of(request, server.endpoint.model)
        return await self._session.post(
            server.endpoint.url,
            data=body if len(body) <= MAX_BYTES_AT_ONCE else BytesIO(body),
            headers=server.headers,
            allow_redirects=False,
            proxy=server.proxy,
        )

    async def _refusal(self, model: str, response: aiohttp.ClientResponse) -> ModelFailed:
        status, headers = response.status, {name.lower(): value for name, value in response.headers.items()}
        if status < _FIRST_ERROR_STATUS:
            return errors.failure(errors.REDIRECTED, model, str(status), status=status)
        body = b""
        # An error that is too long or cannot be unpacked is still an error with this status.
        with suppress(TooMuch):
            async for piece in self._pieces(model, response, self._limits.error):
                body += piece
        return failure_of(model, status, headers, error_in(body))

    async def _deltas(
        self, model: str, response: aiohttp.ClientResponse, reader: ReplyReader
    ) -> AsyncGenerator[Delta, None]:
        if response.content_type == "application/json":
            body = b"".join([piece async for piece in self._pieces(model, response, self._limits.reply)])
            for delta in reader.read_whole(body):
                yield delta
            return
        lines = WholeLines(model, self._limits.line)
        async for piece in self._pieces(model, response, self._limits.reply):
            for delta in _joined([delta for line in lines.feed(piece) for delta in reader.read_line(line)]):
                yield delta
            if reader.ended:
                await _read_to_the_end(response)
                return
            if reader.error is not None:
                return
        for delta in reader.read_line(lines.rest()):
            yield delta

    async def _pieces(self, model: str, response: aiohttp.ClientResponse, limit: int) -> AsyncIterator[bytes]:
        if (response.content_length or 0) > limit:
            raise too_long(model, limit)
        unpacker = Unpacker(model, limit, response.headers.get("content-encoding", ""))
        async for data in response.content.iter_any():
            for piece in unpacker.feed(data):
                yield piece


def body_of(request: ModelRequest, model: str) -> bytes:
    """Return the body of a chat completion, with the messages last. What is not set is not sent."""
    known = known_model(request.model)
    fields = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        # Most servers refuse a reasoning effort for a model without reasoning.
        "reasoning_effort": request.reasoning_effort if known is not None and known.reasoning else None,
        "temperature": request.temperature,
        "response_format": request.response_format,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        _output_limit(request.model, reasoning=known is not None and known.reasoning): request.max_tokens,
    }
    head = exact_json.dumps({name: value for name, value in fields.items() if value is not None})
    messages = [*map(encoded, wire.pieces_for(request.model, request.messages))]
    messages[0] = b'"messages":[' + messages[0]
    messages[-1] += b"]}"
    return b",".join([head.removesuffix(b"}"), *messages])  # A history of megabytes is copied once.


def _output_limit(model: str, *, reasoning: bool) -> str:
    """Return the field of the output limit: OpenAI's reasoning models refuse `max_tokens`, others know only that."""
    return "max_completion_tokens" if reasoning and provider_of(model) == "openai" else "max_tokens"


def _joined(deltas: list[Delta]) -> list[Delta]:
    """Join the neighbouring deltas of one read that are text or reasoning alone."""
    joined: list[Delta] = []
    for delta in deltas:
        last = joined[-1] if joined else None
        if last is not None and _kind(last) == _kind(delta) not in {"call", "both"}:
            joined[-1] = Delta(last.text + delta.text, last.reasoning + delta.reasoning)
        else:
            joined.append(delta)
    return joined


def _kind(delta: Delta) -> str:
    if delta.call is not None:
        return "call"
    return "both" if delta.text and delta.reasoning else "text" if delta.text else "reasoning"


async def _read_to_the_end(response: aiohttp.ClientResponse) -> None:
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(REST_TIMEOUT_S):
            while not response.content.at_eof():
                if len(await response.content.readany()) > MAX_REST_BYTES:
                    return


def _broken(model: str, content_type: str, reader: ReplyReader) -> ModelFailed | None:
    """Return why a reply that has ended is no usable reply, or None if it is one."""
    if reader.error is not None:
        return failure_of(model, None, {}, reader.error, after_output=reader.begun)
    if reader.text.strip() or reader.tool_calls:
        return None
    return errors.no_reply(model, reader.finish_reason, content_type, reader.beginning)


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


def _reply(request: ModelRequest, reader: ReplyReader) -> Reply:
    usage = reader.usage
    if usage is None:
        usage = wire.estimate(request.messages, reader.text, reader.reasoning)
    return Reply(
        text=reader.text,
        reasoning=reader.reasoning or None,
        usage=usage.model_copy(update={"cost_usd": cost_usd(request.model, usage)}),
        finish_reason=reader.finish_reason,
        model=request.model,
        tool_calls=reader.tool_calls,
    )
