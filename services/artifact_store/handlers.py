"""Who hears what: one handler per verb. A handler parses, calls one function, and returns one message.

Replies carry the header `Runwire-Reply`: `result`, or `failure` with a Fault. Requests are served concurrently, in bounds: what waits
beyond them waits in the connection's buffer, and what does not fit there is lost and sent again by its sender.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, cast

import structlog
from faststream import BaseMiddleware, Response, StreamMessage
from faststream.nats import NatsBroker, NatsMessage, NatsResponse, NatsRouter
from faststream.response import PublishCommand
from pydantic import SkipValidation, ValidationError, WithJsonSchema

from contracts import subjects
from contracts.artifacts import (
    ARTIFACT_HEADER,
    DIRECT_HEADER,
    SEQ_HEADER,
    UPLOAD_HEADER,
    ArtifactDeleted,
    ArtifactPage,
    ArtifactRef,
    AssembledStream,
    AssembleStream,
    ChunkTaken,
    DeleteArtifact,
    GetArtifact,
    HeadArtifact,
    ListArtifacts,
    PresignArtifact,
    PresignedUrl,
    PutArtifact,
    StoredArtifact,
    UploadOpened,
)
from contracts.tools import REPLY_HEADER
from services.artifact_store.store import ArtifactStore
from services.artifact_store.streams import MAX_STREAMS, Assembler
from services.runtime.tasks import places
from services.shared.artifacts.client import header_value
from services.shared.artifacts.errors import ArtifactFailed, ArtifactInvalid

from .uploads import WINDOW_CHUNKS, Uploads

logger = structlog.get_logger(__name__)

QUEUE = "artifact_store"
_MAX_REQUESTS = 32
_MAX_PENDING_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class RawRequest:
    """Bytes and what is said of them. Not taken apart by FastStream: it asks for headers in a thread."""

    data: bytes
    headers: dict[str, str]


Bytes = Annotated[RawRequest, SkipValidation, WithJsonSchema({"type": "string", "format": "binary"})]


def build_router(store: ArtifactStore, uploads: Uploads, assembler: Assembler, max_uploads: int) -> NatsRouter:
    """Return who hears what. Nothing is subscribed yet."""
    on = Handlers(store, uploads, assembler)
    router = NatsRouter(middlewares=[ReplyHeaders])
    shared: dict[str, Any] = {"queue": QUEUE, "max_workers": _MAX_REQUESTS, "pending_bytes_limit": _MAX_PENDING_BYTES}
    router.subscriber(subjects.ARTIFACT_PUT, **shared, decoder=_raw)(on.put)
    router.subscriber(subjects.ARTIFACT_OPEN, **shared)(on.open)
    router.subscriber(subjects.ARTIFACT_GET, **shared)(on.get)
    router.subscriber(subjects.ARTIFACT_HEAD, **shared)(on.head)
    router.subscriber(subjects.ARTIFACT_LIST, **shared)(on.list)
    router.subscriber(subjects.ARTIFACT_DELETE, **shared)(on.delete)
    router.subscriber(subjects.ARTIFACT_PRESIGN, **shared)(on.presign)
    # Whoever has waited for long asks again, and waits beside itself.
    router.subscriber(subjects.ARTIFACT_ASSEMBLE, **{**shared, "max_workers": 4 * MAX_STREAMS})(on.assemble)
    # A place for every chunk that senders may have under way, so that none waits behind another upload; and for those who only ask.
    chunks = {**shared, "queue": "", "max_workers": max_uploads * (WINDOW_CHUNKS + 1)}
    router.subscriber(subjects.artifact_chunk(uploads.instance), **chunks, decoder=_raw)(on.chunk)
    return router


class Handlers:
    """The verbs."""

    def __init__(self, store: ArtifactStore, uploads: Uploads, assembler: Assembler) -> None:
        self._store = store
        self._uploads = uploads
        self._assembler = assembler

    async def put(self, sent: Bytes) -> ArtifactRef:
        """Keep the bytes under their digest and answer with a reference."""
        return await self._store.put(_parsed(sent.headers.get(ARTIFACT_HEADER)), sent.data)

    async def open(self, put: PutArtifact) -> UploadOpened:
        """Say where the bytes of a large artifact go."""
        return await self._uploads.open(put)

    async def chunk(self, sent: Bytes) -> ChunkTaken:
        """Pass on the next bytes of an upload."""
        return await self._uploads.take(sent.headers.get(UPLOAD_HEADER, ""), _number(sent.headers.get(SEQ_HEADER)), sent.data)

    async def get(self, asked: GetArtifact) -> Response:
        """Give out a range of bytes, or say where to read them; with the reference in a header."""
        ref, found = await self._store.get(asked)
        headers = {ARTIFACT_HEADER: header_value(ref)}
        if isinstance(found, PresignedUrl):
            headers[DIRECT_HEADER] = "url"
        return NatsResponse(found, headers=headers)

    async def head(self, asked: HeadArtifact) -> StoredArtifact:
        """Tell what is known about an artifact."""
        return await self._store.head(asked)

    async def list(self, asked: ListArtifacts) -> ArtifactPage:
        """Tell which artifacts a session or run has."""
        return await self._store.list(asked)

    async def delete(self, asked: DeleteArtifact) -> ArtifactDeleted:
        """Forget a reference."""
        return await self._store.delete(asked)

    async def presign(self, asked: PresignArtifact) -> PresignedUrl:
        """Sign a URL."""
        return await self._store.presign(asked)

    async def assemble(self, asked: AssembleStream) -> AssembledStream:
        """Put together what a tool has shown in pieces."""
        return await self._assembler.assemble(asked)


class ReplyHeaders(BaseMiddleware[Any, Any]):
    """Every request is answered, and every answer says what it is. What goes wrong never shows what the request contained."""

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: StreamMessage[Any]) -> Any:
        """Turn what a handler raises into a fault."""
        try:
            return await call_next(msg)
        except ArtifactFailed as error:
            return _failure(error)
        except Exception as error:  # noqa: BLE001, whatever it is, the caller waits for an answer
            cause = getattr(error, "original_error", error)  # FastStream wraps it in one that shows the request.
            if isinstance(cause, ValidationError):
                return _failure(ArtifactInvalid(_reason(cause)))
            logger.error("request_failed", error=type(error).__name__, places=places(error))  # noqa: TRY400, a traceback may show bytes
            return _failure(ArtifactFailed("the store failed", retryable=True))

    async def publish_scope(self, call_next: Callable[[Any], Awaitable[Any]], cmd: PublishCommand) -> Any:
        """Say that it is a result, unless it is a failure."""
        cmd.headers.setdefault(REPLY_HEADER, "result")
        return await call_next(cmd)


async def drained(broker: NatsBroker) -> None:
    """Take no further requests, and return once all that have come are with their handlers.

    FastStream alone stops looking before it unsubscribes: requests that come in between would vanish, and their senders wait in vain.
    """
    subscriptions = [found for each in broker.subscribers if (found := getattr(each, "subscription", None)) is not None]
    for subscriber in broker.subscribers:
        cast("Any", subscriber).subscription = None  # It has nothing left to unsubscribe.
    await asyncio.gather(*(subscription.drain() for subscription in subscriptions), return_exceptions=True)


async def _raw(message: NatsMessage) -> RawRequest:
    """Leave a body alone: FastStream would read one that happens to be JSON."""
    return RawRequest(message.body, message.headers)


def _parsed(text: str | None) -> PutArtifact:
    try:
        return PutArtifact.model_validate_json(text or "")
    except ValidationError as error:
        raise ArtifactInvalid(_reason(error)) from None


def _number(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        raise ArtifactInvalid(f"the header {SEQ_HEADER} is missing or no number")
    return int(text)


def _reason(error: ValidationError) -> str:
    """What is wrong with a request, without what it contains: that may be the artifact."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in found)[:1000]


def _failure(error: ArtifactFailed) -> NatsResponse:
    return NatsResponse(error.fault(), headers={REPLY_HEADER: "failure"})
