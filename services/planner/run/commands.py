"""What a handling of a message knows, and the moves that it may make."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from contracts.events import Asked, PlannedCall, RunStarted
from contracts.faults import Fault
from contracts.inbox import CallFinished, TimerFired
from contracts.runs import RunRequested
from contracts.tools import ToolSpec
from services.planner.run.decision import Decision, Final
from services.planner.run.state import Event
from services.planner.run.triage_critique import Critique, Triage

Kind = Literal["request", "call_finished", "timer", "resumed", "cancel", "top_up", "poisoned"]
TimerName = Literal["deadline", "pause"]

CHARACTERS_PER_TOKEN = 4
"""A rough average over languages and JSON; only the decision when to compact rests on it."""


@dataclass(slots=True)
class Told:
    """A message in one handling. The handler fills in what it brings and what it has done; `advance` reads."""

    owner: str
    """`<stream>:<sequence>` of the message."""
    kind: Kind
    holder: str
    """Random token of this handling."""
    now: int
    """Unix ms when the handling looked last."""
    started: RunStarted | None = None
    """Of a request: what opening the run would record."""
    refusal: Fault | None = None
    """Of a request that cannot be opened: why."""
    request: RunRequested | None = None
    waited: bool = True
    """Of a request: the tools that its agent names are there, or were waited for."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Of a request: what its caller gave for tools alone."""
    finished: CallFinished | None = None
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    """Of an outcome: the run's tools, where a join may have to be checked against them."""
    timer: TimerFired | None = None
    reason: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Of a top-up: what the run may spend from now on."""
    wish: str = ""
    """Of a top-up: its id."""
    triaged: Triage | None = None
    critique: Critique | None = None
    decision: Decision | None = None
    """The model's reply, once there is one."""
    unsaid: Final | None = None
    """An answer that is to be shown under a new attempt, without asking the model."""
    asked: bool = False
    """This handling appended an `asked` whose answer is not settled yet."""
    kept: bool = False
    """The context for tools is stored."""
    opened: bool = False
    closed: bool = False
    shown: str | None = None
    """Of a cancel: the text of the answer that listeners have seen, once it was read."""
    woken: bool = False
    timers: set[tuple[TimerName, int]] = field(default_factory=set)
    """Timers that this handling has set."""
    announced: set[str] = field(default_factory=set)
    """Call ids that this handling itself announced: nobody can have sent them before."""
    dispatched: set[str] = field(default_factory=set)

    def note(self, written: Iterable[Event]) -> None:
        """Remember what this handling itself has written to the log."""
        for event in written:
            if event.type == "asked":
                self.unsaid = self.decision if isinstance(self.decision, Final) and self.decision.restate else None
                self.asked, self.decision, self.critique = True, None, None
            elif event.type == "step" and event.status == "started":
                self.asked, self.decision = False, None
                self.announced.update(call.call_id for call in event.calls)
            elif event.type == "called":
                self.announced.update(call.call_id for call in event.calls)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a deployment sets for all its runs."""

    max_repairs: int = 2
    max_provider_failures: int = 2
    max_characters: int = 400_000
    """Of the conversation, before it is compacted; about four to a token."""


@dataclass(frozen=True, slots=True)
class Append:
    """Write these events as one record, fenced."""

    events: list[Event]


@dataclass(frozen=True, slots=True)
class AwaitTools:
    """Wait a while for tools that the run's agent names and that are not there, before the run is opened."""


@dataclass(frozen=True, slots=True)
class KeepContext:
    """Store what the run's caller gave for tools alone, beside the log: before the run is opened, so that no crash loses it."""


@dataclass(frozen=True, slots=True)
class Open:
    """Set the run's deadline timer and enter it in the index."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the model under this fact."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class Say:
    """Show an answer under this fact; the model is not asked."""

    asked: Asked
    answer: Final


@dataclass(frozen=True, slots=True)
class AskEffort:
    """Have a cheap call pick the effort, and the model where several are named."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class AskCritique:
    """Have the answer judged."""

    asked: Asked
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send these calls. Those in `again` may have been sent before."""

    calls: list[PlannedCall]
    again: frozenset[str]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Have the run reminded at a time, Unix ms; in place of an earlier timer of the name."""

    name: TimerName
    at: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Tell the run's inbox that it goes on: who asks models hears that lane."""


@dataclass(frozen=True, slots=True)
class ReadShown:
    """Read what listeners have seen of the turn's answer; no more of it can be stored."""


@dataclass(frozen=True, slots=True)
class Close:
    """Bring the index up to date and cancel the timers of a run that has ended."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Nothing of this message is left to do."""


@dataclass(frozen=True, slots=True)
class Silent:
    """Somebody else owns the message now."""


Todo = (
    Append
    | AwaitTools
    | KeepContext
    | Open
    | Ask
    | Say
    | AskEffort
    | AskCritique
    | Dispatch
    | SetTimer
    | Wake
    | ReadShown
    | Close
    | Ack
    | Silent
)
