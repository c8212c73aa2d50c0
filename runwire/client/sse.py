"""Decode Server-Sent Events from bytes as they arrive. Pure: no I/O, no clock.

Follows the event stream format of the WHATWG HTML standard (9.2.6), wherever the bytes are split: lines end with CR, LF
or CRLF, a byte order mark may come first, an empty line ends an event, and one without an end is dropped.
"""

import codecs
from collections.abc import Callable
from dataclasses import dataclass, field

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
