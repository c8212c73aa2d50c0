"""The calls that a process holds: those in flight, and those that ended a short while ago.

Rule 1: a call is known by its idempotency key. Whoever asks again, with the same request or with a question, joins the
call in flight: it is shown all pieces of artifacts from the start, then the end. A call that has ended is answered
again, never done again.
Rule 2: what is remembered is bounded, in number, bytes and time.
Rule 3: `HeldCall` belongs to the loop that serves; `CallContext` is used by the function's thread and hands everything
over.
"""

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, MutableMapping
from typing import Any

from runwire._contracts_import import limits
from runwire._contracts_import import tools as wire
from runwire.tools.context import encode_piece

Reply = tuple[dict[str, str], bytes]
Send = Callable[[str, Reply], Awaitable[None]]
"""Sends one reply to a reply subject; never raises."""

_MAX_REPLAYED_BYTES = 4 << 20
_HEADROOM = 4096
_FINISHED_S = 600
_MAX_FINISHED = 1000
_MAX_FINISHED_BYTES = 64 << 20
_SENT_WITHIN_S = 30


def reply_of(kind: wire.ReplyKind, body: bytes = b"", **headers: str) -> Reply:
    """Return one reply."""
    return {wire.REPLY_HEADER: kind, **headers}, body


def result_replies(body: bytes, max_payload: int) -> list[Reply]:
    """Return the replies that carry a result: one, or parts of raw bytes and an empty result that counts them."""
    size = min(limits.PART_BYTES, max_payload - _HEADROOM)
    if len(body) <= size:
        return [reply_of("result", body)]
    parts = [reply_of("part", body[start : start + size]) for start in range(0, len(body), size)]
    return [*parts, ({wire.REPLY_HEADER: "result", wire.PARTS_HEADER: str(len(parts))}, b"")]


def failure_replies(reason: str, code: str, *, retryable: bool = False) -> list[Reply]:
    """Return the reply that ends a call without a result."""
    failure = wire.ToolFailure(reason=reason, code=code, retryable=retryable)
    return [reply_of("failure", failure.model_dump_json().encode())]


class HeldCall:
    """One call: who waits for it, what they were shown, and how it ended."""

    def __init__(self, call: wire.ToolCall, reply: str, send: Send) -> None:
        self.call = call
        self.cancelled = False
        self.signed_at = time.monotonic()
        """When the function last showed a sign of life."""
        self.stop: Callable[[], object] | None = None
        """Interrupts the function."""
        self.ended: list[Reply] | None = None
        self.ended_at = 0.0
        self._waiting = [reply] if reply else []
        self._pieces: list[Reply] | None = []
        self._pieces_bytes = 0
        self._send = send
        self._lock = asyncio.Lock()

    @property
    def weight(self) -> int:
        """Bytes that remembering this call costs."""
        return sum(len(body) for _, body in self.ended or []) + 512

    async def show(self, reply: Reply) -> None:
        """Show something to all who wait, in order."""
        self.signed_at = time.monotonic()
        async with self._lock:
            if self.ended is not None:
                return
            if reply[0][wire.REPLY_HEADER] == "artifact_chunk":
                self._keep(reply)
            await self._to_all([reply])

    async def beat(self, reply: Reply) -> None:
        """Tell all who wait that the call is alive."""
        if self.ended is None and not self._lock.locked():
            await self._to_all([reply])

    async def join(self, reply: str, beat: Reply) -> None:
        """Answer somebody who asks for this call: with its end, or from the start of what it has shown."""
        async with self._lock:
            if reply in self._waiting:
                return
            if self.ended is None:
                self._waiting.append(reply)
            for one in self.ended if self.ended is not None else [beat, *(self._pieces or [])]:
                await self._send(reply, one)

    async def end(self, replies: list[Reply]) -> None:
        """Tell all who wait how the call ended, and remember it."""
        async with self._lock:
            self.ended, self.ended_at, self._pieces = replies, time.monotonic(), None
            await self._to_all(replies)
            self._waiting.clear()

    def cancel(self) -> None:
        """Nobody waits any more: interrupt the function, or let it see that it may stop."""
        if self.ended is None:
            self.cancelled = True
            if self.stop is not None:
                self.stop()

    def _keep(self, reply: Reply) -> None:
        if self._pieces is None:
            return
        self._pieces_bytes += len(reply[1])
        # A late joiner without the first pieces is shown none: a stream with a hole helps nobody.
        if self._pieces_bytes > _MAX_REPLAYED_BYTES:
            self._pieces = None
        else:
            self._pieces.append(reply)

    async def _to_all(self, replies: list[Reply]) -> None:
        for reply in replies:
            for subject in self._waiting:
                await self._send(subject, reply)


class HeldCalls:
    """All calls of this process by idempotency key."""

    def __init__(self) -> None:
        self._running: dict[str, HeldCall] = {}
        self._finished: OrderedDict[str, HeldCall] = OrderedDict()
        self._bytes = 0

    def find(self, key: str) -> HeldCall | None:
        """Return the call of this key, in flight or ended."""
        self._forget()
        return self._running.get(key) or self._finished.get(key)

    def running(self) -> list[HeldCall]:
        """Return the calls in flight."""
        return list(self._running.values())

    def add(self, held: HeldCall) -> None:
        """Hold a call."""
        self._running[held.call.idempotency_key] = held

    def finish(self, held: HeldCall) -> None:
        """Remember a call that has ended."""
        key = held.call.idempotency_key
        self._running.pop(key, None)
        self._finished[key] = held
        self._bytes += held.weight
        self._forget()

    def _forget(self) -> None:
        oldest = time.monotonic() - _FINISHED_S
        while self._finished:
            held = next(iter(self._finished.values()))
            if len(self._finished) <= _MAX_FINISHED and self._bytes <= _MAX_FINISHED_BYTES and held.ended_at >= oldest:
                return
            self._finished.popitem(last=False)
            self._bytes -= held.weight


class CallContext:
    """What a served function gets as its ToolContext."""

    def __init__(self, held: HeldCall, loop: asyncio.AbstractEventLoop) -> None:
        call = held.call
        self.call_id, self.run_id, self.tenant = call.call_id, call.run_id, call.tenant
        self.session_id, self.user_id, self.trace_id = call.session_id, call.user_id, call.trace_id
        self.idempotency_key, self.deadline_at = call.idempotency_key, call.deadline_at
        self.context: Mapping[str, Any] = call.context
        self.logger: Any = _CallLogger(
            logging.getLogger(f"runwire.tool.{call.tool}"), {"run_id": call.run_id, "call_id": call.call_id}
        )
        self._held = held
        self._loop = loop
        self._numbers: dict[str, int] = {}
        self._numbering = threading.Lock()

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more."""
        return self._held.cancelled

    def progress(self, message: str = "", fraction: float | None = None) -> Awaitable[None]:
        """Show how far the work is."""
        body = wire.Progress(message=message[:2000], fraction=fraction).model_dump_json().encode()
        return self._hand_over(reply_of("progress", body))

    def emit_artifact(
        self, *, stream_id: str, chunk: Any, done: bool = False, artifact_type: str | None = None
    ) -> Awaitable[None]:
        """Show a piece of an artifact. Raises ValueError when it is no JSON or above 128 KiB."""
        with self._numbering:
            number = self._numbers.get(stream_id, 0)
            body = encode_piece(stream_id, number, chunk, done=done, artifact_type=artifact_type)
            self._numbers[stream_id] = number + 1
            return self._hand_over(reply_of("artifact_chunk", body))

    def _hand_over(self, reply: Reply) -> Awaitable[None]:
        showing: Coroutine[Any, Any, None] = self._held.show(reply)
        try:
            sent = asyncio.run_coroutine_threadsafe(showing, self._loop)
        except RuntimeError:  # The process is ending: nobody is there to be shown anything.
            showing.close()
            sent = concurrent.futures.Future()
            sent.set_result(None)
        return _Sent(sent)


class _Sent:
    """What a coroutine awaits; a plain function has waited already when it gets this."""

    def __init__(self, sent: "concurrent.futures.Future[None]") -> None:
        self._sent = sent
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            concurrent.futures.wait([sent], timeout=_SENT_WITHIN_S)

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self._sent).__await__()


class _CallLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        known = " ".join(f"{key}={value}" for key, value in (self.extra or {}).items())
        return f"{msg} {known}", kwargs
