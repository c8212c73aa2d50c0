"""What can go wrong between a service and NATS."""


class BusError(Exception):
    """Base of everything that this package raises."""


class Refused(BusError):
    """The server said no: nothing was stored. `code` is JetStream's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text


class Unsure(BusError):
    """No answer came: the write may or may not be stored. Read before you write again."""


class Unavailable(BusError):
    """NATS could not be reached, or has no JetStream, within the time allowed."""


class Moved(BusError):
    """The fenced write was not stored, because the subject has moved on. `tail` holds what others wrote since.

    An empty tail means that the subject was purged: what was known of it is void.
    """

    def __init__(self, tail: list[tuple[int, bytes]]) -> None:
        super().__init__(f"{len(tail)} newer records")
        self.tail = tail


class Misconfigured(BusError):
    """A stream, consumer or bucket exists with other settings than this version needs, and they cannot be changed in place."""


WRONG_LAST_SEQUENCE = 10071
GUARD_IN_FLIGHT = 10164
FULL = 10077
NO_ROOM = frozenset({10023, 10047})
"""The server has no room for more, by its own limits: insufficient resources, insufficient storage resources."""
NOT_FOUND = frozenset({10014, 10037, 10059})
"""Consumer, message and stream not found."""
