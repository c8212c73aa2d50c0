"""Models whose providers have a protocol of their own, through LiteLLM. No other file imports it.

Rule 1: the import of LiteLLM takes seconds and 150 MB, so it is imported only when such a model is configured or named,
in a thread; `warm` does it before the process is ready.
Rule 2: a call sends one request and repeats nothing, neither here nor in LiteLLM (`http_transport` refuses a second
one). `run.turn.decide` decides what follows a failure.
Rule 3: a consumer that leaves a stream early must close it; otherwise the provider goes on generating.
Rule 4: a provider's error text is never shown or logged: it can hold prompts, keys and image bytes.
Rule 5: the size of a provider's reply is limited before LiteLLM reads it (`http_transport`).
"""

import asyncio
import gc
import logging
import os
import re
import sys
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from types import ModuleType
from typing import Any

from contracts.runs.payload import Usage
from services.planner.conversation.encoding import Messages, decoded
from services.planner.models import wire
from services.planner.models.errors import ModelFailed, failure_of
from services.planner.models.gathering import Gathered, Piece
from services.planner.models.limits import Limits, ReplyTimeouts
from services.planner.models.litellm.http_transport import Exchange, bound_replies
from services.planner.models.types import Delta, ModelRequest, Reply

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
    "LITELLM_MODE": "PRODUCTION",  # else it loads a `.env` that it finds from the working directory
    # It searches whole texts of errors, several times, at 1 s per MB. Here none of them is shown or logged.
    "LITELLM_DISABLE_REDACT_SECRETS": "true",
    # LiteLLM takes equal chunks in a row for an endless loop; its default of 100 already refuses a line of dashes.
    "REPEATED_STREAMING_CHUNK_LIMIT": "2000",
}
"""Without these settings LiteLLM downloads tables during its import, and retries in a thread without end."""
_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "openai", "httpx", "httpcore")
_ITS_MODULES = r"litellm\b"
_FIRST_CHUNKS, _LAST_CHUNKS = 4, 8
"""Chunks that LiteLLM keeps: one of the first may hold a usage, and it compares the last ones."""
BACKSTOP_S = 5.0
"""LiteLLM's own idle limit fires this much after ours, for work that ours cannot interrupt."""

_READY_DELTA = (
    b'{"id":"1","object":"chat.completion.chunk","created":1,"model":"ready",'
    b'"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":null}]}'
)
_READY_REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: "
    + _READY_DELTA
    + b"\n\ndata: [DONE]\n\n"
)


class GatheredChunks(Gathered):
    """The received chunks of a reply of LiteLLM."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.usage: Any = None
        self.ended = False
        """Whether the provider sent a finish reason. Its usage has arrived by then, or comes with the stream's end."""

    def take(self, chunk: Any) -> Iterator[Delta]:
        """Add a chunk, and yield what it adds. Raises ModelFailed."""
        self.usage = getattr(chunk, "usage", None) or self.usage
        for choice in chunk.choices[:1]:
            is_last = choice.finish_reason is not None
            self.ended = self.ended or is_last
            delta = choice.delta
            self.opaque.take(delta)
            self._refusal.add(getattr(delta, "refusal", None) or "")
            yield from self._add(delta.content or "", getattr(delta, "reasoning_content", None) or "", is_last=is_last)
            for call in getattr(delta, "tool_calls", None) or ():
                function = call.function
                yield from self._add_call(
                    Piece(call.index, call.id or "", function.name or "", function.arguments or "")
                )
            if (function := getattr(delta, "function_call", None)) is not None:
                yield from self._add_call(Piece(0, "", function.name or "", function.arguments or ""))

    def usage_in(self, chunks: Iterable[Any]) -> Any:
        """Return the usage that the provider reported, or None. `chunks`: those that LiteLLM keeps.

        LiteLLM's final usage may be an estimate in the same form. Only the provider's own is in the chunks, complete,
        or in parts that LiteLLM adds up at the end.
        """
        found = [usage for chunk in chunks if (usage := getattr(chunk, "usage", None)) is not None]
        whole = next((usage for usage in reversed(found) if usage.prompt_tokens and usage.completion_tokens), None)
        return whole or (self.usage if any(usage.completion_tokens for usage in found) else None)


class LiteLLMModel:
    """Any model that LiteLLM knows. One request per call, without retries.

    Keys are taken from the environment, as LiteLLM's documentation says. `api_base`: address for models `openai/…`,
    which only `warm` and tests call through LiteLLM. `limits`: sizes that are accepted from a provider.
    """

    def __init__(
        self,
        *,
        api_base: str | None = None,
        limits: Limits = Limits(),  # noqa: B008, frozen
    ) -> None:
        self._api_base = api_base
        self._limits = limits
        self._library: ModuleType | None = None
        self._loading = asyncio.Lock()

    async def warm(self) -> None:
        """Import LiteLLM and make one request, so that the first run waits for neither. Idempotent."""
        async with self._loading:
            if self._library is not None:
                return
            library = await asyncio.to_thread(_load)
            self._library = library
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it builds its own pydantic models at the first call, which warns
                await self._put_through()

    async def _put_through(self) -> None:
        """Send a request to a provider on loopback: the first request of a process takes 0.3 s longer."""
        async with _ready_provider() as address:
            elsewhere = LiteLLMModel(api_base=address)
            elsewhere._library = self._library
            messages = Messages.of([{"role": "user", "content": "ready?"}])
            request = ModelRequest(model="openai/ready", messages=messages, total_s=10.0)
            # This fails behind a proxy that also covers loopback. The first run is slower then.
            with suppress(ModelFailed):
                async for _ in elsewhere._attempt(request):
                    pass
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that are kept open for further requests."""
        if self._library is not None:
            await self._library.close_litellm_async_clients()
            await self._library.module_level_aclient.close()  # which that leaves open; it opens itself again
            self._library.in_memory_llm_clients_cache.flush_cache()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed."""
        await self.warm()
        # Where warnings are errors, pydantic's deprecation warnings in LiteLLM would break its streams. The filter is
        # looked up first, since adding one is slow.
        if not any(getattr(module, "pattern", None) == _ITS_MODULES for _, _, _, module, _ in warnings.filters):
            warnings.filterwarnings("ignore", module=_ITS_MODULES)
        async with aclosing(self._attempt(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        timeouts = ReplyTimeouts(request)
        gathered = GatheredChunks(request.model)
        upstream: Any = None
        exchange = Exchange(request.model, self._limits)
        failure: ModelFailed | None = None
        try:
            upstream = await timeouts.wait(exchange.within(self._open(request)))
            while (chunk := await timeouts.wait(exchange.within(anext(upstream, None)))) is not None:
                if not exchange.requests:
                    reason = (
                        f"LiteLLM asks {request.model} in a way of its own, in which replies cannot be bounded: name"
                        " another provider of it"
                    )
                    failure = ModelFailed("model_failed", reason)
                    break
                for delta in gathered.take(chunk):
                    yield delta
                # LiteLLM keeps all chunks, and puts the reply together from them again, which takes seconds.
                chunks: list[Any] = getattr(upstream, "chunks", [])
                del chunks[_FIRST_CHUNKS:-_LAST_CHUNKS]
                if gathered.ended and gathered.usage_in(chunks) is not None:
                    break  # at the end of a stream LiteLLM assembles the reply twice, which costs as much as the stream
            for delta in gathered.end():
                yield delta
            await exchange.read_rest()
        except ModelFailed as error:
            failure = error
        except Exception as error:  # noqa: BLE001, LiteLLM's errors have no common base
            failure = exchange.failure or failure_of(error, request.model, after_output=gathered.begun)
        finally:
            if upstream is not None:
                await upstream.aclose()
            await exchange.aclose()
        # Raised outside the handler, so that the provider's exception and its text are not chained to this one.
        finish = getattr(upstream, "received_finish_reason", None)
        failure = failure or exchange.failure or gathered.failure(finish, *exchange.page)
        if failure is not None:
            failure.after_output = gathered.begun
            raise failure
        with exchange.current():
            usage = self._usage(request, gathered, upstream)
        yield gathered.reply(usage, finish, is_ended=False)

    def _open(self, request: ModelRequest) -> Awaitable[Any]:
        assert self._library is not None  # noqa: S101, `stream` warms first
        wanted = {
            "reasoning_effort": request.reasoning_effort,
            "max_tokens": request.max_tokens,
            "response_format": request.response_format,
            "tools": request.tools,
            "tool_choice": request.tool_choice,
            "stream_options": {"include_usage": True} if request.asks_usage else None,
        }
        if request.model.startswith(("openai/", "hosted_vllm/")):
            wanted |= {"api_base": self._api_base, "api_key": "none" if self._api_base else None}
        opened: Awaitable[Any] = self._library.acompletion(
            model=request.model,
            messages=decoded(wire.pieces_for(request.model, request.messages)),
            stream=True,
            timeout=request.timeout_s + BACKSTOP_S,
            num_retries=0,
            max_retries=0,
            drop_params=True,
            **{name: value for name, value in wanted.items() if value is not None},
        )
        return opened

    def _usage(self, request: ModelRequest, gathered: GatheredChunks, upstream: Any) -> Usage:
        """Return the provider's usage, or an estimate, which costs less than LiteLLM's own."""
        assert self._library is not None  # noqa: S101, see `_open`
        counted = usage = gathered.usage_in(getattr(upstream, "chunks", ()))
        if counted is None:
            guess = wire.estimate(request.messages, gathered.text, gathered.reasoning)
            usage = self._library.Usage(
                prompt_tokens=guess.prompt_tokens,
                completion_tokens=guess.completion_tokens,
                total_tokens=guess.prompt_tokens + guess.completion_tokens,
            )
        try:
            cost = sum(self._library.cost_per_token(model=request.model, usage_object=usage))
        except Exception:  # noqa: BLE001, a model without a known price raises whatever its table's lookup raises
            cost = None
        written = getattr(usage, "completion_tokens_details", None)
        read = getattr(usage, "prompt_tokens_details", None)
        return Usage(
            model_calls=1,
            cost_usd=cost,
            estimated=counted is None,
            prompt_tokens=usage.prompt_tokens or 0,
            completion_tokens=usage.completion_tokens or 0,
            reasoning_tokens=getattr(written, "reasoning_tokens", None) or 0,
            cached_tokens=getattr(read, "cached_tokens", None) or 0,
        )


def _load() -> ModuleType:
    """Import LiteLLM quietly and without network. Runs in a thread; takes seconds the first time."""
    if (loaded := sys.modules.get("litellm")) is not None:
        return loaded
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    collecting = gc.isenabled()
    gc.disable()  # garbage collection takes a third of the import's time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import litellm  # noqa: PLC0415, see rule 1
            from httpx._config import DEFAULT_LIMITS  # noqa: PLC0415, see rule 1
    finally:
        if collecting:
            gc.enable()
        gc.freeze()
    bound_replies()
    DEFAULT_LIMITS.max_connections = None  # by default, a hundred idle models would block all other requests
    litellm.suppress_debug_info = True
    litellm.disable_aiohttp_transport = True
    litellm.disable_token_counter = True  # its tokenizer takes 110 MB and its first use 0.4 s, for an estimate
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()  # its own prints prompts with their images at DEBUG
        logger.setLevel(logging.CRITICAL)  # texts of errors may hold prompts and keys
    return litellm


@asynccontextmanager
async def _ready_provider() -> AsyncIterator[str]:
    """Run a provider on loopback that replies with one word. Yields its base address."""
    async with await asyncio.start_server(_say_yes, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def _say_yes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(_READY_REPLY)
        await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
