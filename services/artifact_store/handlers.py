"""The requests that the store answers: one handler per verb.

A handler parses, calls one function, and returns one message.

Replies carry the header `Runwire-Reply`: `result`, or `failure` with a Fault. Requests are served concurrently up to a
bound. Further requests wait in the connection's buffer; what does not fit there is dropped, and its sender repeats it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, cast

import structlog
from faststream import BaseMiddleware, Response, StreamMessage
from faststream.nats import NatsBroker, NatsMessage, NatsResponse, NatsRouter
from faststream.response import PublishCommand
from nats.aio.client import Client
from pydantic import SkipValidation, ValidationError, WithJsonSchema

from contracts import artifacts
from contracts.tools.messages import REPLY_HEADER
from contracts.wire import subjects
from contracts.wire.base import Message
from contracts.wire.faults import describe
from services.artifact_store.assembler import MAX_STREAMS, Assembler
from services.artifact_store.store import ArtifactStore
from services.artifact_store.uploads import WINDOW_CHUNKS, Uploads
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Refused
from services.runtime.tasks import code_locations
from services.shared.artifacts.errors import ArtifactFailed, ArtifactInvalid, StorageUnavailable
from services.shared.artifacts.requests import header_value

logger = structlog.get_logger(__name__)

QUEUE = "artifact_store"
_MAX_REQUESTS = 32
_MAX_PENDING_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class RawRequest:
    """The body and headers of a request. FastStream does not parse it: it would resolve headers in a thread."""

    data: bytes
    headers: dict[str, str]


Bytes = Annotated[RawRequest, SkipValidation, WithJsonSchema({"type": "string", "format": "binary"})]


class Broker(NatsBroker):
    """FastStream's broker on the connection of a bus, which it neither makes nor closes.

    `declare` stays off, as for every subscriber: FastStream would change our streams.
    """

    def __init__(self, bus: Bus, router: NatsRouter) -> None:
        super().__init__(routers=[router], graceful_timeout=bus.settings.graceful_timeout_s, logger=None)
        self._bus = bus

    async def _connect(self) -> Client:
        self._bus.answered += [cast("Any", each).subject.template for each in self.subscribers]
        self.config.connect(self._bus.nc)
        return self._bus.nc


def build_router(store: ArtifactStore, uploads: Uploads, assembler: Assembler, max_uploads: int) -> NatsRouter:
    """Return the router with one subscriber per verb. Nothing is subscribed yet."""
    on = Handlers(store, uploads)
    router = NatsRouter(middlewares=[ReplyHeaders])
    shared: dict[str, Any] = {"queue": QUEUE, "max_workers": _MAX_REQUESTS, "pending_bytes_limit": _MAX_PENDING_BYTES}
    router.subscriber(subjects.artifact_put(), **shared, decoder=_raw)(on.put)
    router.subscriber(subjects.artifact_open(), **shared)(on.open)
    router.subscriber(subjects.artifact_get(), **shared)(on.get)
    router.subscriber(subjects.artifact_head(), **shared)(store.head)
    router.subscriber(subjects.artifact_list(), **shared)(store.list)
    router.subscriber(subjects.artifact_delete(), **shared)(store.delete)
    # A caller that times out repeats its request, so several requests may wait for one stream.
    router.subscriber(subjects.artifact_assemble(), **{**shared, "max_workers": 4 * MAX_STREAMS})(assembler.assemble)
    # One worker for each chunk in flight, so that no upload waits for another, and one for probes.
    chunks = {**shared, "queue": "", "max_workers": max_uploads * (WINDOW_CHUNKS + 1)}
    router.subscriber(subjects.artifact_chunk(uploads.instance), **chunks, decoder=_raw)(on.chunk)
    return router


class Handlers:
    """One method per verb that has more to translate than a message."""

    def __init__(self, store: ArtifactStore, uploads: Uploads) -> None:
        self._store = store
        self._uploads = uploads

    async def put(self, sent: Bytes) -> Response:
        """Store the bytes and return their reference."""
        put = artifacts.PutArtifact.model_validate_json(sent.headers.get(artifacts.ARTIFACT_HEADER) or "")
        return _stored(*await self._store.put(put, sent.data))

    async def open(self, put: artifacts.PutArtifact) -> Response:
        """Open the upload of a large artifact, and return the subject for its chunks."""
        return _stored(*await self._uploads.open(put))

    async def chunk(self, sent: Bytes) -> Response:
        """Forward the next bytes of an upload."""
        seq = sent.headers.get(artifacts.SEQ_HEADER)
        if seq is None or not seq.isascii() or not seq.isdigit():
            raise ArtifactInvalid(f"the header {artifacts.SEQ_HEADER} is missing or not a number")
        upload_id = sent.headers.get(artifacts.UPLOAD_HEADER, "")
        return _stored(*await self._uploads.take(upload_id, int(seq), sent.data))

    async def get(self, request: artifacts.GetArtifact) -> Response:
        """Return a range of bytes. The reference is in a header."""
        ref, data = await self._store.get(request)
        return NatsResponse(data, headers={artifacts.ARTIFACT_HEADER: header_value(ref)})


@lru_cache(maxsize=1024)
def _log_refusal(subject: str) -> None:
    """Log a request without an inbox, once per subject."""
    logger.warning("request_without_inbox_refused", subject=subject)


class ReplyHeaders(BaseMiddleware[Any, Any]):
    """Answers every request that has an inbox as its reply subject, and marks each reply as result or failure.

    A failure never shows the content of the request. With another reply subject the store would write for its caller
    where the caller must not write, for example into a bucket.
    """

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: StreamMessage[Any]) -> Any:
        """Convert an exception of a handler into a fault."""
        if not msg.reply_to.startswith(subjects.REPLIES):
            _log_refusal(msg.raw_message.subject)
            msg.reply_to = ""  # FastStream replies with an empty message where a handler returns nothing.
            return None
        try:
            return await call_next(msg)
        except ArtifactFailed as error:
            return _failure(error)
        except Refused:
            return _failure(StorageUnavailable("JetStream refused a request"))
        except BusError:
            return _failure(StorageUnavailable("NATS does not answer"))
        except Exception as error:  # noqa: BLE001, the caller waits for an answer
            # FastStream wraps the error in one that contains the request.
            cause = getattr(error, "original_error", error)
            if isinstance(cause, ValidationError):
                return _failure(ArtifactInvalid(describe(cause)))
            # No traceback: it may show bytes.
            logger.error("request_failed", error=type(error).__name__, places=code_locations(error))  # noqa: TRY400
            return _failure(ArtifactFailed("the store failed", retryable=True))

    async def publish_scope(self, call_next: Callable[[Any], Awaitable[Any]], cmd: PublishCommand) -> Any:
        """Mark the reply as a result, unless it is a failure."""
        cmd.headers.setdefault(REPLY_HEADER, "result")
        return await call_next(cmd)


async def drained(broker: NatsBroker) -> None:
    """Unsubscribe, and return once all received requests have reached their handlers.

    FastStream stops reading before it unsubscribes, so requests that arrive in between would be lost without a reply.
    """
    subscriptions = [found for each in broker.subscribers if (found := getattr(each, "subscription", None)) is not None]
    for subscriber in broker.subscribers:
        cast("Any", subscriber).subscription = None  # FastStream has nothing left to unsubscribe.
    await asyncio.gather(*(subscription.drain() for subscription in subscriptions), return_exceptions=True)


async def _raw(message: NatsMessage) -> RawRequest:
    """Leave the body unparsed: FastStream would decode a body that happens to be JSON."""
    return RawRequest(message.body, message.headers)


def _stored(message: Message, warning: str | None) -> NatsResponse:
    return NatsResponse(message, headers={artifacts.WARNING_HEADER: warning} if warning else None)


def _failure(error: ArtifactFailed) -> NatsResponse:
    return NatsResponse(error.fault(), headers={REPLY_HEADER: "failure"})
