"""What `CallMachine.receive` may command. A transport carries out the commands of one event in their order."""

from dataclasses import dataclass

from services.tool_runner.errors import CallFailed

from .events import BytesWanted, Content, Piece, Progress


@dataclass(frozen=True, slots=True)
class Send:
    """Send the call to one instance of the tool. If that is not possible, the next event is NotSent."""

    request: int
    start_by: float
    """An instance that has not started the call by then must not start it."""
    repeats: int | None = None
    """How many earlier requests may have reached an instance that was lost; None: this is no repetition."""


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """Ask all instances whether one works on the call. An instance that does continues to reply, to this request."""

    request: int


@dataclass(frozen=True, slots=True)
class PingInstance:
    """Ask whether an instance of the tool is connected to NATS. If it is not, the next event is NoResponders."""

    request: int
    instance: str


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """Check whether the call needs an outcome. The next event is StatusConfirmed, AlreadyCompleted or RunEnded."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Tell all instances that the call is cancelled."""


@dataclass(frozen=True, slots=True)
class PassOn:
    """Publish progress or a piece of an artifact to the run's listeners, or send the tool the bytes that it wants."""

    sent: Progress | Piece | BytesWanted


@dataclass(frozen=True, slots=True)
class KeepPart:
    """Append a part to the result of a request."""

    request: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RememberHeartbeat:
    """Expect heartbeats in this interval from the start of the tool's next calls."""

    every_s: float


@dataclass(frozen=True, slots=True)
class Succeed:
    """The call is over, with this result and the last text beside it."""

    data: bytes
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class SucceedInParts:
    """The call is over. The kept parts of a request are its result, beside the last text."""

    request: int
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The call is over, without a result."""

    failure: CallFailed


@dataclass(frozen=True, slots=True)
class Pause:
    """This round of the call is over. The next one comes with the answer of a person."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Abandon:
    """The call is over and needs no outcome: another tool runner has completed it, or its run has ended."""

    run_ended: bool


@dataclass(frozen=True, slots=True)
class Decline:
    """The call is over: no instance has begun it, and its caller does not wait (`CallRules.may_decline`)."""


Ending = Succeed | SucceedInParts | Fail | Pause | Abandon | Decline
"""The last command of a call."""
Action = Send | QueryStatus | PingInstance | CheckStatus | Cancel | PassOn | KeepPart | RememberHeartbeat
"""A command that does not end the call."""
Command = Action | Ending
