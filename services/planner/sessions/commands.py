"""What follows from the state of a session: the commands that its effects carry out. All of them are idempotent."""

from dataclasses import dataclass

from contracts.runs.requests import KeyBudget, Memory, RunRequested
from contracts.wire.faults import Fault


@dataclass(frozen=True, slots=True)
class Begin:
    """Tell a queued run that it has the turn. `session_seq`: the record up to which it knows the conversation."""

    run: str
    session_seq: int


@dataclass(frozen=True, slots=True)
class Forward:
    """Send text and images of the request of a queued run to the run that has the turn."""

    request: RunRequested
    into: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a run."""

    run: str
    reason: str


@dataclass(frozen=True, slots=True)
class Merged:
    """Tell a queued run that another one took its text."""

    run: str
    into: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell a queued run that it may not run."""

    run: str
    fault: Fault


@dataclass(frozen=True, slots=True)
class Attach:
    """Tell a run that was requested without a session that it belongs to this one."""

    run: str


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """Request the run that summarises older turns, as the memory of the run that has ended says, for its API key."""

    run: str
    memory: Memory
    key_id: str = ""
    key_budget: KeyBudget | None = None


@dataclass(frozen=True, slots=True)
class WriteEntry:
    """Write the session's entry in the index."""


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete the session, its runs and its artifacts: no run of it is open any more."""


Command = Begin | Forward | Cancel | Merged | Refuse | Attach | RequestSummary | WriteEntry | Purge
