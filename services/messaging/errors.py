"""Errors of NATS and JetStream, as services see them. Those of nats-py do not leave this package."""

from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError

NATS_ERRORS = (NatsError, OSError)
"""What nats-py and the socket raise. TimeoutError and ConnectionError are OSErrors."""


class BusError(Exception):
    """Base of all errors of this package."""


class Refused(BusError):
    """The server rejected the request: nothing was stored. `code`: JetStream's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text

    @property
    def is_second_of_subject(self) -> bool:
        """Whether the subject holds a message already, in a stream with one for each: a request that is stored."""
        return self.code == FULL and "per subject" in self.text


class Unsure(BusError):
    """No answer to a write: it may or may not be stored. Read before writing again."""


class Unavailable(BusError):
    """NATS or its JetStream could not be reached in time."""


class NoResponders(Unavailable):
    """Nobody has subscribed to the subject of a request."""


class Outdated(BusError):
    """A guarded write was not stored: there are newer messages than its writer has read. Read them and decide again."""

    def __init__(self) -> None:
        super().__init__("there are newer messages")


class Misconfigured(BusError):
    """A stream, consumer or bucket has settings that this version cannot use and that cannot be changed in place."""


WRONG_LAST_SEQUENCE = 10071
GUARD_IN_FLIGHT = 10164
FULL = 10077
NO_LEADER = frozenset({10004, 10008})
"""A cluster without a leader for now: incomplete, temporarily unavailable."""
TOO_LARGE = 10054
"""The message exceeds a limit of the stream or of the server."""
NO_ROOM = frozenset({10023, 10047})
"""The server has no room for more, by its own limits: insufficient resources, insufficient storage resources."""
NOT_FOUND = frozenset({10014, 10037, 10059})
"""Consumer, message and stream not found."""


def translated(error: Exception) -> BusError:
    """Return one of `NATS_ERRORS` as an error of ours."""
    if isinstance(error, NoRespondersError):
        return NoResponders("nobody answers on this subject")
    if isinstance(error, MaxPayloadError):
        return Refused(TOO_LARGE, "the message is larger than NATS takes")
    return Unavailable(repr(error))
