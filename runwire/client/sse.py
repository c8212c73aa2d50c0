"""Decode Server-Sent Events from bytes as they arrive. Pure: no I/O, no clock.

Follows the event stream format of the WHATWG HTML standard (9.2.6), whatever the cuts between pieces: lines end with
CR, LF or CRLF, a byte order mark may stand at the start, an event ends with an empty line, what has not ended is no
event.
"""

import codecs
from dataclasses import dataclass, field

_MAX_EVENT = 16 << 20
"""Characters of one event; a stream that exceeds them is no stream of events."""


class EventTooLarge(ValueError):
    """An event exceeds the limit: it does not come from a gateway."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event.

    `id` is what stood in this event, None when nothing did; `last_id` is what `Last-Event-ID` should say after it.
    """

    type: str
    data: str
    id: str | None
    last_id: str


@dataclass
class SseDecoder:
    """Feed it the pieces of one response in order.

    `last_id` is the cursor so far (an id may stand in a block without data), `retry_ms` what the server asked for, None
    until it does.
    """

    last_id: str = ""
    retry_ms: int | None = None
    limit: int = _MAX_EVENT
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
        return self._events(text)

    def _events(self, text: str) -> list[ServerSentEvent]:
        found = []
        for line in self._lines(text):
            if line:
                self._field(line)
            elif (event := self._dispatch()) is not None:
                found.append(event)
        return found

    def _lines(self, text: str) -> list[str]:
        """Return the lines that `text` completes; keep what follows the last end of a line."""
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
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = self.last_id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)

    def _dispatch(self) -> ServerSentEvent | None:
        kind, data, own = self._type, self._data, self._id
        self._type, self._data, self._id = "", [], None
        self._size = sum(map(len, self._rest))
        if not data:
            return None
        return ServerSentEvent(kind or "message", "\n".join(data), own, self.last_id)
