"""The calls of a process, those that run and those that ended a short while ago, each with its `ToolContext`.

Rule 1: a call is known by its idempotency key and its round: after a pause its function runs again. A repeated
request, or a status request, joins the call that runs: it receives all pieces of artifacts from the first one on, then
the end. A call that has ended is answered again, never run again. A call that may not begin any more is not answered.
Rule 2: what is kept of ended calls is bounded, in number, bytes and time.
Rule 3: everything here belongs to the event loop that serves. The functions' threads report to it by `CallContext`.
"""

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from contracts import artifacts
from contracts.tools import messages as wire
from contracts.wire import base
from contracts.wire.base import PART_BYTES
from runwire.errors import ToolError
from runwire.serving.connection import CallerClock
from runwire.tools.context import Awaited, Pauses, ToolLogger, encode_content, encode_piece

Reply = tuple[dict[str, str], bytes]
"""Headers and body."""
Key = tuple[str, int]
"""Idempotency key and round of a call."""
Send = Callable[[str, Reply], Awaitable[None]]
"""Sends one reply to a reply subject; never raises."""

_MAX_REASON_CHARACTERS = 2000
_MAX_REPLAYED_BYTES = 4 << 20
_REPLY_OVERHEAD_BYTES = 4096
_CALL_OVERHEAD_BYTES = 512
_ENDED_CALL_TTL_S = 600
_MAX_ENDED_CALLS = 1000
_MAX_ENDED_BYTES = 64 << 20


def reply_of(kind: wire.ReplyKind, body: bytes = b"", **headers: str) -> Reply:
    """Return one reply."""
    return {wire.REPLY_HEADER: kind, **headers}, body


def result_replies(body: bytes, max_payload: int) -> list[Reply]:
    """Return the replies that carry a result: one, or parts of raw bytes and an empty result that counts them."""
    size = min(base.PART_BYTES, max_payload - _REPLY_OVERHEAD_BYTES)
    if len(body) <= size:
        return [reply_of("result", body)]
    parts = [reply_of("part", body[start : start + size]) for start in range(0, len(body), size)]
    return [*parts, ({wire.REPLY_HEADER: "result", wire.PARTS_HEADER: str(len(parts))}, b"")]


def failure_replies(reason: str, code: str, *, retryable: bool = False) -> list[Reply]:
    """Return the reply that ends a call without a result. An author's text may hold what UTF-8 cannot."""
    reason, code = (str(text)[:_MAX_REASON_CHARACTERS].encode(errors="replace").decode() for text in (reason, code))
    failure = wire.ToolFailure(reason=reason, code=code, retryable=bool(retryable))
    return [reply_of("failure", failure.model_dump_json().encode())]


class Call:
    """One call: its request, the reply subjects of those who wait for it, what they received, and its end."""

    def __init__(self, request: wire.ToolCall, reply_to: str, send: Send, clock: CallerClock) -> None:
        self.request = request
        self._clock = clock
        self._is_awaited = False
        """The function has begun, or a reply has said that it will: nobody calls another instance."""
        self.cancelled = False
        self.last_sign_at = time.monotonic()
        """When the function last reported anything."""
        self.interrupt: Callable[[ToolError], object] | None = None
        """Interrupts the function, and ends the call with this failure."""
        self.timer: asyncio.TimerHandle | None = None
        """The next check of its deadline and its silence."""
        self.end_replies: list[Reply] | None = None
        self.ended_at = 0.0
        self.wanted: tuple[artifacts.BytesWanted, asyncio.Future[bytes]] | None = None
        """Bytes of an artifact that the function waits for."""
        self._waiting = [reply_to] if reply_to else []
        self._pieces: list[Reply] | None = []
        self._pieces_bytes = 0
        self._send = send
        self._lock = asyncio.Lock()

    @property
    def key(self) -> Key:
        """What identifies the call among those of this process."""
        return self.request.idempotency_key, self.request.round

    def may_begin(self) -> bool:
        """Whether the function may begin, or has begun. Ask just before it begins, and before the first reply."""
        self._is_awaited = self._is_awaited or self._clock.may_begin(self.request)
        return self._is_awaited

    @property
    def kept_bytes(self) -> int:
        """What it costs to keep this call once it has ended."""
        return sum(len(body) for _, body in self.end_replies or []) + _CALL_OVERHEAD_BYTES

    async def send(self, reply: Reply) -> None:
        """Send a report of the function to all who wait, in order."""
        self.last_sign_at = time.monotonic()
        async with self._lock:
            if self.end_replies is not None:
                return
            if reply[0][wire.REPLY_HEADER] == "artifact_chunk":
                self._keep_piece(reply)
            await self._send_to_all([reply])

    def take(self, given: artifacts.BytesGiven, data: bytes) -> None:
        """Take bytes that the function may be waiting for."""
        if self.wanted is None:
            return
        wanted, arrived = self.wanted
        if (wanted.artifact_id, wanted.offset) == (given.artifact_id, given.offset) and not arrived.done():
            if given.failure is None:
                arrived.set_result(data)
            else:
                failure = given.failure
                arrived.set_exception(ToolError(failure.reason, code=failure.code, retryable=failure.retryable))

    async def send_heartbeat(self, reply: Reply) -> None:
        """Send a heartbeat to all who wait."""
        if self.end_replies is None and not self._lock.locked() and self.may_begin():
            await self._send_to_all([reply])

    async def join(self, reply_to: str, heartbeat: Reply) -> None:
        """Answer one more request for this call: with its end, or with what it has sent so far."""
        async with self._lock:
            if reply_to in self._waiting or not self.may_begin():
                return
            if self.end_replies is None:
                self._waiting.append(reply_to)
            for reply in self.end_replies if self.end_replies is not None else [heartbeat, *(self._pieces or [])]:
                await self._send(reply_to, reply)

    async def end(self, replies: list[Reply]) -> None:
        """Send the end of the call to all who wait, and keep it."""
        async with self._lock:
            self.end_replies, self.ended_at, self._pieces = replies, time.monotonic(), None
            await self._send_to_all(replies)
            self._waiting.clear()

    def cancel(self, reason: ToolError) -> None:
        """End the call with this failure. A coroutine is interrupted; a plain function may check `cancelled`."""
        if self.end_replies is None:
            self.cancelled = True
            if self.interrupt is not None:
                self.interrupt(reason)

    def _keep_piece(self, reply: Reply) -> None:
        if self._pieces is None:
            return
        self._pieces_bytes += len(reply[1])
        # Without the first pieces a late joiner gets none: a stream with a gap is of no use.
        if self._pieces_bytes > _MAX_REPLAYED_BYTES:
            self._pieces = None
        else:
            self._pieces.append(reply)

    async def _send_to_all(self, replies: list[Reply]) -> None:
        for reply in replies:
            for subject in self._waiting:
                await self._send(subject, reply)


class Calls:
    """All calls of this process by their keys."""

    def __init__(self) -> None:
        self.running: dict[Key, Call] = {}
        self._ended: OrderedDict[Key, Call] = OrderedDict()
        self._ended_bytes = 0

    def find(self, key: Key) -> Call | None:
        """Return the call with this key, running or ended."""
        return self.running.get(key) or self._ended.get(key)

    def is_full(self, max_running: int) -> bool:
        """Return whether so many calls run. One whose end is being sent does not count: its caller may know the end."""
        if len(self.running) < max_running:
            return False
        return sum(call.end_replies is None for call in self.running.values()) >= max_running

    def move_to_ended(self, call: Call) -> None:
        """Keep a call that has ended."""
        self.running.pop(call.key, None)
        self._ended[call.key] = call
        self._ended_bytes += call.kept_bytes
        self._expire()

    def _expire(self) -> None:
        oldest = time.monotonic() - _ENDED_CALL_TTL_S
        while self._ended:
            call = next(iter(self._ended.values()))
            is_within_bounds = len(self._ended) <= _MAX_ENDED_CALLS and self._ended_bytes <= _MAX_ENDED_BYTES
            if is_within_bounds and call.ended_at >= oldest:
                return
            self._ended.popitem(last=False)
            self._ended_bytes -= call.kept_bytes


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
        self, artifact: artifacts.ArtifactRef, offset: int = 0, length: int = PART_BYTES
    ) -> Awaited[bytes]:
        """Return bytes of an artifact that an argument refers to. Raises ToolError."""
        wanted = artifacts.BytesWanted(artifact_id=artifact.artifact_id, offset=offset, length=min(length, PART_BYTES))
        return Awaited(asyncio.run_coroutine_threadsafe(self._given(wanted), self._loop))

    async def _given(self, wanted: artifacts.BytesWanted) -> bytes:
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


class _Sent(Awaited[None]):
    """What a report returns. A coroutine awaits it; in a plain function's thread the constructor waits instead."""

    def __init__(self, sent: "concurrent.futures.Future[None]") -> None:
        super().__init__(sent)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            concurrent.futures.wait([sent], timeout=_SEND_TIMEOUT_S)


class _CallLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = " ".join(f"{key}={value}" for key, value in (self.extra or {}).items())
        return f"{msg} {fields}", kwargs
