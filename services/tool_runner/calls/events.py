"""What can happen to a call. `CallMachine.receive` takes these, one at a time.

`request` is the number of the request that a reply answers: the machine numbers its requests from 1 on.
"""

from dataclasses import dataclass

from contracts.tools.messages import ToolFailure


@dataclass(frozen=True, slots=True)
class Started:
    """The first event. `may_have_begun`: another tool runner may have called the tool for this call."""

    may_have_begun: bool
    checked_at: float
    """When it was last checked that the call needs an outcome."""
    may_be_unread: bool = False
    """Another tool runner may have sent the call to an instance that has not read it yet."""


@dataclass(frozen=True, slots=True)
class StatusConfirmed:
    """The call still needs an outcome: its run goes on, and nobody has completed the call. `checked_at`: since then."""

    checked_at: float


@dataclass(frozen=True, slots=True)
class AlreadyCompleted:
    """Another tool runner has written the outcome."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run of the call has ended."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request was certainly not sent, because NATS is not connected."""

    request: int


@dataclass(frozen=True, slots=True)
class NoResponders:
    """Nobody subscribes to the subject of the request, so nobody received it."""

    request: int


@dataclass(frozen=True, slots=True)
class Lost:
    """What worked on the request is certainly gone, and sends no reply any more: its process, or its connection."""

    request: int


@dataclass(frozen=True, slots=True)
class Declined:
    """An instance received the request, and has not started the call and will not.

    `is_busy`: it runs as many calls as it may; otherwise the request came too late.
    """

    request: int
    is_busy: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """An instance works on the call. `every_s`: it promises the next heartbeat within that time."""

    every_s: float | None = None
    instance: str | None = None
    """Its id as a NATS micro service."""


@dataclass(frozen=True, slots=True)
class Progress:
    """An encoded `contracts.tools.messages.Progress`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """An encoded `contracts.tools.messages.ArtifactPiece`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Content:
    """The tool's text for the model, beside its result. `is_cut`: its end was left out, since it was too long."""

    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class BytesWanted:
    """An encoded `contracts.artifacts.BytesWanted`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a large result."""

    request: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """The tool has succeeded. `parts`: how many parts hold the result; None: `data` is the result."""

    request: int
    data: bytes
    parts: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The tool reports a failure."""

    failure: ToolFailure


@dataclass(frozen=True, slots=True)
class Pause:
    """The tool ends this round of the call and asks a person: an encoded `contracts.tools.messages.PauseReply`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Flood:
    """The tool sent more than may wait to be processed; all of it was dropped."""


@dataclass(frozen=True, slots=True)
class Reconnected:
    """NATS is connected again. Replies sent meanwhile are lost."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of the alarm has come. `connected_since`: how long NATS has been connected; None: it is not."""

    connected_since: float | None


Reply = Heartbeat | Progress | Piece | Content | BytesWanted | Part | Result | Failure | Pause
"""What an instance sends that works on the call."""
Event = (
    Started
    | StatusConfirmed
    | AlreadyCompleted
    | RunEnded
    | NotSent
    | NoResponders
    | Lost
    | Declined
    | Reply
    | Flood
    | Reconnected
    | Tick
)
