"""Follow one run or one session over connections that may break.

Rule 1: each event is yielded once, in order. After a broken connection the stream is asked for from the last id on.
Rule 2: a stream that cannot be resumed within the client's `patience_s` raises; the run itself continues.
"""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, ClassVar, Generic, Literal, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from contracts.runs import events
from contracts.sessions import records as sessions
from runwire.client.sse import EventTooLarge, SseDecoder
from runwire.client.transport import Retries, Transport, checked, error_of, is_retryable
from runwire.errors import RunwireError

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
        self._http = transport.http
        self._retries = Retries(transport.patience)
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
                async with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                    async for event in self._events_of(response):
                        yield event
            except (httpx.TransportError, EventTooLarge) as error:
                reason = error
            except RunwireError as error:
                if not is_retryable(error):
                    raise
                reason = error
            if time.monotonic() - opened_at > _STABLE_S:
                self._retries.reset()
            if not self._ended:
                await self._retries.pause(reason)

    async def _events_of(self, response: httpx.Response) -> AsyncIterator[E]:
        self._retries.note_answer()
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
