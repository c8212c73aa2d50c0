"""Follow one run or one session over connections that may break.

Rule 1: each event is yielded once, in order. After a broken connection the stream is asked for from the last id on.
Rule 2: a stream that cannot be resumed within the client's `patience_s` raises; the run itself continues.
Rule 3: bytes are decoded by the event stream format of the WHATWG HTML standard (9.2.6), wherever they are split: lines
end with CR, LF or CRLF, a byte order mark may come first, an empty line ends an event, one without an end is dropped.
"""

import codecs
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from contracts.runs import events
from contracts.sessions import records as sessions
from runwire.client.transport import RETRYABLE_STATUS, Retries, Transport, checked, error_of
from runwire.errors import RunwireError

_MAX_EVENT_CHARACTERS = 16 << 20
"""A stream with a longer event is not an event stream."""


class EventTooLarge(ValueError):
    """An event exceeds the limit, so it does not come from a gateway."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event.

    `id` is the id in this event, None without one; `last_id` is the value for `Last-Event-ID` after it.
    """

    type: str
    data: str
    id: str | None
    last_id: str


@dataclass
class SseDecoder:
    """Feed it the pieces of one response in order.

    `last_id` is the last id so far (a block without data may have one too), `retry_ms` the pause that the server asked
    for, None until it does. `on_comment` is called with each comment.
    """

    last_id: str = ""
    retry_ms: int | None = None
    limit: int = _MAX_EVENT_CHARACTERS
    on_comment: Callable[[str], object] = lambda _: None
    _text: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )
    _begun: bool = False
    _after_cr: bool = False
    _rest: list[str] = field(default_factory=list)
    _size: int = 0
    _type: str = ""
    _data: list[str] = field(default_factory=list)
    _id: str | None = None

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """Take the next bytes and return the events that they complete. Raises EventTooLarge."""
        text = self._text.decode(piece)
        if not text:
            return []
        if not self._begun:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if self._after_cr:
            # A CR has ended a line; a LF right after it belongs to the same end.
            text = text.removeprefix("\n")
            self._after_cr = False
        self._size += len(text)
        if self._size > self.limit:
            raise EventTooLarge(f"more than {self.limit} characters without an end")
        found = []
        for line in self._lines(text):
            if line:
                self._field(line)
                continue
            if self._data:
                found.append(ServerSentEvent(self._type or "message", "\n".join(self._data), self._id, self.last_id))
            self._type, self._data, self._id = "", [], None
            self._size = sum(map(len, self._rest))
        return found

    def _lines(self, text: str) -> list[str]:
        """Return the lines that `text` completes; keep what follows the last one."""
        if "\n" not in text and "\r" not in text:
            self._rest.append(text)
            return []
        self._after_cr = text.endswith("\r")
        text = "".join([*self._rest, text]).replace("\r\n", "\n").replace("\r", "\n")
        *lines, rest = text.split("\n")
        self._rest = [rest] if rest else []
        return lines

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            self.on_comment(value)
        elif name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = self.last_id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)


E = TypeVar("E", events.RunEvent, sessions.SessionEvent)
_STABLE_S = 5.0
"""A stream that was open that long did not fail, even if no event came."""
_SILENCE_TIMEOUT_S = 45.0
"""Three heartbeats of a gateway: after that the connection is dead."""


class EventStream(Generic[E]):
    """The events of a run or session. Iterate over it once.

    Raises NotFound if there is none, Unreachable when no gateway came back in time, RunwireError for other refusals.
    """

    _EVENT: ClassVar[TypeAdapter[Any]]
    _LAST: ClassVar[frozenset[str]]
    """Types of events after which nothing follows."""

    def __init__(
        self,
        transport: Transport,
        path: Callable[[], str],
        after: str | None,
        on_comment: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`path`: returns the address of the events, or raises NotFound."""
        self.cursor = after or ""
        """The id of the last record whose events were all yielded; a new stream with `after=cursor` continues there."""
        self._path = path
        self._transport = transport
        self._retries = Retries(transport)
        self._on_comment = on_comment
        self._ended = False

    async def __aiter__(self) -> AsyncGenerator[E, None]:
        """Yield the events."""
        path = self._path()
        timeout = httpx.Timeout(_SILENCE_TIMEOUT_S, connect=5)
        while not self._ended:
            reason: Exception | None = None
            opened_at = time.monotonic()
            try:
                headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self.cursor} if self.cursor else {})
                async with self._transport.http.stream("GET", path, headers=headers, timeout=timeout) as response:
                    async for event in self._events_of(response):
                        yield event
            except (httpx.TransportError, EventTooLarge) as error:
                reason = error
            except RunwireError as error:
                if error.status not in RETRYABLE_STATUS:
                    raise
                reason = error
            if time.monotonic() - opened_at > _STABLE_S:
                self._retries.reset()
            if not self._ended:
                await self._retries.pause(reason)

    async def _events_of(self, response: httpx.Response) -> AsyncIterator[E]:
        self._transport.was_answered = True
        if response.status_code == httpx.codes.NO_CONTENT:
            self._ended = True
            return
        if not response.is_success:
            await response.aread()
            raise error_of(response)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            raise RunwireError("not_a_gateway", f"{response.url} answers without an event stream", status=200)
        decoder = SseDecoder(on_comment=self._on_comment)
        # The events of a record are yielded together: its id comes with the last one, and a stream that breaks before
        # that starts again with the first.
        record: list[E] = []
        async for piece in response.aiter_bytes():
            for sent in decoder.feed(piece):
                record.append(self._parsed(sent.data))
                if sent.id is None:
                    continue
                self._retries.reset()
                for event in record:
                    if event is record[-1]:
                        self.cursor = sent.id
                        self._ended = event.type in self._LAST
                    yield event
                record = []
                if self._ended:
                    return

    def _parsed(self, data: str) -> E:
        event: E
        try:
            event = self._EVENT.validate_json(data)
        except ValidationError:
            # A known event with fields of a newer version: better than no event at all.
            event = events.UnknownEvent.model_validate({"type": "unknown", **json.loads(data)})
        return event


class RunStream(EventStream[events.RunEvent]):
    """The events of one run up to the terminal one. Iterate over it once.

    Raises NotFound for an unknown run, Unreachable when no gateway came back in time, RunwireError for other refusals.
    """

    _EVENT = TypeAdapter(events.RunEvent)
    _LAST = events.TERMINAL

    def __init__(
        self,
        transport: Transport,
        run_id: str,
        after: str | None,
        artifacts: Literal["values", "refs"],
        on_comment: Callable[[str], object],
    ) -> None:
        query = "" if artifacts == "values" else f"?artifacts={artifacts}"
        super().__init__(transport, lambda: f"/v1/runs/{checked(run_id)}/events{query}", after, on_comment)
        self.run_id = run_id


class SessionStream(EventStream[sessions.SessionEvent]):
    """The events of one session, up to its deletion. Iterate over it once.

    Raises NotFound for an unknown session, Unreachable when no gateway came back in time, RunwireError for other
    refusals.
    """

    _EVENT = TypeAdapter(sessions.SessionEvent)
    _LAST = frozenset({"deleted"})

    def __init__(self, transport: Transport, path: str, after: str | None) -> None:
        super().__init__(transport, lambda: f"{path}/events", after)
