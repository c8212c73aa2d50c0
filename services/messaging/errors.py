"""Errors of NATS and JetStream, as services see them."""


class BusError(Exception):
    """Base of all errors of this package."""


class Refused(BusError):
    """The server rejected the request: nothing was stored. `code`: JetStream's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text


class Unsure(BusError):
    """No answer: the write may or may not be stored. Read before writing again."""


class Unavailable(BusError):
    """NATS or its JetStream could not be reached in time."""


class Moved(BusError):
    """The guarded write was not stored, because the subject has newer records. `tail`: the newer records.

    An empty tail means that the subject was purged, so everything known about it is void.
    """

    def __init__(self, tail: list[tuple[int, bytes]]) -> None:
        super().__init__(f"{len(tail)} newer records")
        self.tail = tail


class Misconfigured(BusError):
    """A stream, consumer or bucket has settings that this version cannot use and that cannot be changed in place."""


WRONG_LAST_SEQUENCE = 10071
GUARD_IN_FLIGHT = 10164
FULL = 10077
NO_ROOM = frozenset({10023, 10047})
"""The server has no room for more, by its own limits: insufficient resources, insufficient storage resources."""
NOT_FOUND = frozenset({10014, 10037, 10059})
"""Consumer, message and stream not found."""
