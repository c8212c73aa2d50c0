"""The state of one handling of a message, and the commands that `advance` may return for it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from contracts.events import Asked, PlannedCall, RunStarted
from contracts.faults import Fault
from contracts.inbox import CallFinished, TimerFired
from contracts.runs import RunRequested
from contracts.tools import ToolSpec
from services.planner.run.decision import Decision, Final
from services.planner.run.history import Length
from services.planner.run.state import Event, Run
from services.planner.run.triage_critique import Critique, Triage

Kind = Literal["request", "call_finished", "timer", "resumed", "cancel", "top_up", "poisoned"]
TimerName = Literal["deadline", "pause", "retry"]

FIRST_PAUSE_S = 0.5
CHARACTERS_PER_TOKEN = 4
"""A rough average over languages and JSON. Only the decision when to compact depends on it."""


@dataclass(slots=True)
class Handling:
    """One handling of one message. The handler stores what it received and what it has done; `advance` only reads."""

    owner: str
    """`<stream>:<sequence>` of the message."""
    kind: Kind
    attempt_token: str
    """Random; `asked` records carry it as `holder`, so a handling recognises its own model calls."""
    now: int
    """Unix ms: the time that this handling acts on. Updated after each slow effect."""
    started: RunStarted | None = None
    """Of a request: the fact that opens the run."""
    refusal: Fault | None = None
    """Of a request that is refused: the reason."""
    request: RunRequested | None = None
    waited: bool = True
    """Of a request: its agent's tools are available, or the wait for them is over."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Of a request: the caller's `tool_context`, which only tools receive."""
    finished: CallFinished | None = None
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    """Of an outcome: the specifications of the run's tools, to check a join against."""
    timer: TimerFired | None = None
    reason: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Of a top-up: the limits to set."""
    top_up_id: str = ""
    triaged: Triage | None = None
    critique: Critique | None = None
    decision: Decision | None = None
    """What the model's reply means, once it is complete."""
    answer_to_restate: Final | None = None
    """An answer to stream again under a new attempt, without a model call."""
    asked: bool = False
    """This handling appended an `asked` record that has no decision yet."""
    kept: bool = False
    """The `tool_context` is stored."""
    opened: bool = False
    closed: bool = False
    shown: str | None = None
    """Of a cancel: the answer text that listeners have received, once it is read."""
    woken: bool = False
    timers: set[tuple[TimerName, int]] = field(default_factory=set)
    """Timers that this handling has set."""
    announced: set[str] = field(default_factory=set)
    """Ids of calls that this handling itself recorded, so no earlier handling can have sent them."""
    dispatched: set[str] = field(default_factory=set)

    def note(self, written: Iterable[Event]) -> None:
        """Update the state after this handling appended events."""
        for event in written:
            if event.type == "asked":
                self.answer_to_restate = (
                    self.decision if isinstance(self.decision, Final) and self.decision.restate else None
                )
                self.asked, self.decision, self.critique = True, None, None
            elif event.type == "model_failed":
                self.asked, self.decision = False, None
            elif event.type == "step" and event.status == "started":
                self.asked, self.decision = False, None
                self.announced.update(call.call_id for call in event.calls)
            elif event.type == "called":
                self.announced.update(call.call_id for call in event.calls)


class StrategyRules(Protocol):
    """What the rules of a run need to know of its strategy. Pure."""

    def next(self, run: Run, handling: Handling, rules: "Rules") -> list[Event]:
        """Return the events that follow when nothing is in flight and no budget is exhausted.

        That is at the opening of the run, where its log is still empty, and when a step has ended, its join included.
        """
        ...

    def length(self, run: Run) -> Length:
        """Measure the conversation as the model receives it."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """The strategy of a run, and settings that hold for all runs of a deployment."""

    strategy: StrategyRules
    max_repairs: int = 2
    max_provider_failures: int = 2
    """Retries of one model in one model call, before the next model is called."""
    first_pause_s: float = FIRST_PAUSE_S
    """Of the first retry; it doubles with each further one."""
    longest_pause_s: float = 20.0
    model_total_s: float = 900.0
    """Of one model call, its retries, fallbacks and waits included."""
    max_characters: int = 400_000
    """Length of a conversation above which it is compacted."""


@dataclass(frozen=True, slots=True)
class Append:
    """Append these events to the log as one record, fenced by the sequence of its newest record."""

    events: list[Event]


@dataclass(frozen=True, slots=True)
class AwaitTools:
    """Wait some seconds for unavailable tools that the run's agent names, before the run is opened."""


@dataclass(frozen=True, slots=True)
class KeepContext:
    """Store the caller's `tool_context` outside the log, before the run is opened, so that no crash loses it."""


@dataclass(frozen=True, slots=True)
class Open:
    """Set the run's deadline timer and write its index entry."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Call the model for this `asked` record."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class Say:
    """Stream a known answer for this `asked` record, without a model call."""

    asked: Asked
    answer: Final


@dataclass(frozen=True, slots=True)
class AskEffort:
    """Let a short model call choose the reasoning effort, and the model where the run names several."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class AskCritique:
    """Let a model score the answer."""

    asked: Asked
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send these calls. `again`: ids of calls that an earlier handling may have sent already."""

    calls: list[PlannedCall]
    again: frozenset[str]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Schedule a timer message at a time, Unix ms. It replaces an earlier timer of the same name."""

    name: TimerName
    at: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a time, Unix ms, at most `MAX_WAIT_IN_EFFECT_S` from now."""

    until: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Publish `resumed` to the inbox consumer, since the control consumer never calls models."""


@dataclass(frozen=True, slots=True)
class ReadShown:
    """Read the part of the turn's answer that is stored. No more of it can be added."""


@dataclass(frozen=True, slots=True)
class Close:
    """Write the final index entry of an ended run, and cancel its timers."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledge: this message is done."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop without ack, nak or heartbeat: another handling of this message has superseded this one."""


Command = (
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
    | Wait
    | Wake
    | ReadShown
    | Close
    | Ack
    | Abandon
)
