"""Follow one run over connections that may break.

Rule 1: each event is yielded once, in order. After a broken connection the stream is asked for from the last id on.
Rule 2: a stream that cannot be resumed within the client's `patience_s` raises; the run itself continues.
"""

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Literal

import httpx
from pydantic import TypeAdapter, ValidationError

from contracts import events
from runwire.client.retries import Patience, Retries, checked, error_of, is_retryable
from runwire.client.sse import EventTooLarge, SseDecoder
from runwire.errors import RunwireError

_EVENT: TypeAdapter[events.RunEvent] = TypeAdapter(events.RunEvent)
_STABLE_S = 5.0
"""A stream that was open that long did not fail, even if no event came."""
_SILENCE_TIMEOUT_S = 45.0
"""Three heartbeats of a gateway: after that the connection is dead."""


class RunStream:
    """The events of one run up to the terminal one. Iterate over it once.

    Raises NotFound for an unknown run, Unreachable when no gateway came back in time, RunwireError for other refusals.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        run_id: str,
        after: str | None,
        patience: Patience,
        artifacts: Literal["values", "refs"],
        on_comment: Callable[[str], object],
    ) -> None:
        self.run_id = run_id
        self.cursor = after or ""
        """The id of the last record whose events were all yielded; `follow(run_id, after=cursor)` continues there."""
        self._query = "" if artifacts == "values" else f"?artifacts={artifacts}"
        self._http = http
        self._on_comment = on_comment
        self._retries = Retries(patience)
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[events.RunEvent]:
        """Yield the events."""
        path = f"/v1/runs/{checked(self.run_id)}/events{self._query}"
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

    async def _events_of(self, response: httpx.Response) -> AsyncIterator[events.RunEvent]:
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
        record: list[events.RunEvent] = []
        async for piece in response.aiter_bytes():
            for sent in decoder.feed(piece):
                record.append(_parsed(sent.data))
                if sent.id is None:
                    continue
                self._retries.reset()
                for event in record:
                    if event is record[-1]:
                        self.cursor = sent.id
                        self._ended = event.type in events.TERMINAL
                    yield event
                record = []
                if self._ended:
                    return


def _parsed(data: str) -> events.RunEvent:
    try:
        return _EVENT.validate_json(data)
    except ValidationError:
        # A known event with fields of a newer version: better than no event at all.
        return events.UnknownEvent.model_validate({"type": "unknown", **json.loads(data)})
