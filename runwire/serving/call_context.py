"""The ToolContext of a served call: it hands every report of the function to the event loop that serves."""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Generator, Mapping, MutableMapping
from typing import Any

from contracts.artifacts import references
from contracts.tools import messages as wire
from contracts.wire.limits import PART_BYTES
from runwire.errors import ToolError
from runwire.serving.caller_clock import CallerClock
from runwire.serving.calls import Call, Reply, reply_of
from runwire.tools.context import Awaited, ToolLogger, encode_content, encode_piece
from runwire.tools.pauses import Pauses

_SEND_TIMEOUT_S = 30
_READ_WAIT_S, _READ_ATTEMPTS = 20.0, 4
_MAX_MESSAGE_CHARACTERS = 2000


class CallContext(Pauses):
    """What a served function receives as its ToolContext. It may be used from any thread."""

    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop, clock: CallerClock) -> None:
        request = call.request
        super().__init__(request.answers, request.state, accepted=request.understands_pause)
        self.call_id, self.run_id, self.tenant = request.call_id, request.run_id, request.tenant
        self.session_id, self.user_id, self.trace_id = request.session_id, request.user_id, request.trace_id
        self.request_id = request.request_id or request.run_id
        self.context_id = request.session_id or request.run_id
        self.idempotency_key, self.deadline_at = request.idempotency_key, clock.local(request.deadline_at)
        self.context: Mapping[str, Any] = request.context
        self.logger: ToolLogger = _CallLogger(
            logging.getLogger(f"runwire.tool.{request.tool}"), {"run_id": request.run_id, "call_id": request.call_id}
        )
        self._call = call
        self._loop = loop
        self._next_seq: dict[str, int] = {}
        self._seq_lock = threading.Lock()
        self._content = b""
        self._reading = asyncio.Lock()

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted."""
        return self._call.cancelled

    def progress(self, message: str = "", fraction: float | None = None) -> Awaitable[None]:
        """Report progress."""
        message = message[:_MAX_MESSAGE_CHARACTERS].encode(errors="replace").decode()
        progress = wire.Progress(message=message, fraction=fraction)
        return self._send(reply_of("progress", progress.model_dump_json().encode()))

    def emit_artifact(
        self, *, stream_id: str, chunk: Any, done: bool = False, artifact_type: str | None = None
    ) -> Awaitable[None]:
        """Send a piece of an artifact. Raises ValueError when it is not JSON or above 128 KiB."""
        with self._seq_lock:
            seq = self._next_seq.get(stream_id, 0)
            body = encode_piece(stream_id, seq, chunk, done=done, artifact_type=artifact_type)
            self._next_seq[stream_id] = seq + 1
            return self._send(reply_of("artifact_chunk", body))

    def read_artifact(
        self, artifact: references.ArtifactRef, offset: int = 0, length: int = PART_BYTES
    ) -> Awaited[bytes]:
        """Return bytes of an artifact that an argument refers to. Raises ToolError."""
        wanted = references.BytesWanted(artifact_id=artifact.artifact_id, offset=offset, length=min(length, PART_BYTES))
        return Awaited(asyncio.run_coroutine_threadsafe(self._given(wanted), self._loop))

    async def _given(self, wanted: references.BytesWanted) -> bytes:
        async with self._reading:  # One range at a time.
            for _ in range(_READ_ATTEMPTS):  # A message may be lost, with its connection or with who answers.
                arrived: asyncio.Future[bytes] = self._loop.create_future()
                self._call.wanted = wanted, arrived
                await self._call.send(reply_of("wanted", wanted.model_dump_json().encode()))
                try:
                    async with asyncio.timeout(_READ_WAIT_S):
                        return await arrived
                except TimeoutError:
                    continue
                finally:
                    self._call.wanted = None
        raise ToolError(
            f"the artifact {wanted.artifact_id} could not be read", code="storage_unavailable", retryable=True
        )

    def set_content(self, text: str) -> None:
        """Give the model a text beside the result. Raises ValueError above 32 KiB."""
        self._content = encode_content(text)

    def content_replies(self) -> list[Reply]:
        """Return the reply that carries the text for the model, where there is one and the caller accepts it."""
        is_accepted = self._call.request.understands_content
        return [reply_of("content", self._content)] if self._content and is_accepted else []

    def _send(self, reply: Reply) -> Awaitable[None]:
        sending = self._call.send(reply)
        try:
            sent = asyncio.run_coroutine_threadsafe(sending, self._loop)
        except RuntimeError:  # The process is ending: nobody receives anything more.
            sending.close()
            sent = concurrent.futures.Future()
            sent.set_result(None)
        return _Sent(sent)


class _Sent:
    """What a report returns. A coroutine awaits it; in a plain function's thread the constructor waits instead."""

    def __init__(self, sent: "concurrent.futures.Future[None]") -> None:
        self._sent = sent
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            concurrent.futures.wait([sent], timeout=_SEND_TIMEOUT_S)

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self._sent).__await__()


class _CallLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = " ".join(f"{key}={value}" for key, value in (self.extra or {}).items())
        return f"{msg} {fields}", kwargs
