"""The reply subject of a message that JetStream delivers: it says which message that is."""

from dataclasses import dataclass

_SHORT_ACK_TOKENS = 9


@dataclass(frozen=True, slots=True)
class Delivered:
    """What the reply subject of a delivered message says. `stored_ns`: Unix ns by the clock of the server."""

    stream: str
    number: int
    sequence: int
    stored_ns: int


def delivered(reply: str) -> Delivered:
    """Parse the reply subject of a delivery.

    It is `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<number>.<sequence>.<consumer sequence>.<ns>.<pending>`.
    One more token may follow.
    """
    tokens = reply.split(".")
    stream, _, number, sequence, _, at_ns = tokens[2 if len(tokens) == _SHORT_ACK_TOKENS else 4 :][:6]
    return Delivered(stream, int(number), int(sequence), int(at_ns))
