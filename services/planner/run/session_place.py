"""The place of a run in its session."""

from dataclasses import dataclass

from contracts.wire.faults import Fault


@dataclass(frozen=True, slots=True)
class Begun:
    """The run has the turn. It knows the conversation up to this record of the session."""

    session_seq: int


@dataclass(frozen=True, slots=True)
class Busy:
    """The run cannot begin at once. It has not joined the session yet."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run waits for its turn: a message will begin, merge or refuse it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The run may not run in this session."""

    fault: Fault


Place = Begun | Busy | Waiting | Refused
