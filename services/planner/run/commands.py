"""What one handling of a message has received and done, and the commands that `advance` may return for it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.runs import events, inbox
from contracts.runs.payload import Usage
from contracts.runs.requests import RunRequested
from contracts.sessions import records, tasks
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from services.planner.run.calls.starting import DirectRules
from services.planner.run.people.input_rules import ADMITTED, Checked
from services.planner.run.state.fold import StrategyFold
from services.planner.run.state.history import Length
from services.planner.run.state.run import Event, Place, Run, round_id
from services.planner.run.turn.decision import Critique, Decision, OwnDecision, Triage
from services.shared.budgets.totals import Spending

FIRST_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Poisoned:
    """A message whose handling was started too often. It is in DEAD, and its body is not parsed any more."""

    session: str = ""
    """Of the request of a run that a session made: the session's key."""


OfTasks = inbox.RunTaskSettled | inbox.RunTasksPaused
OfTurns = inbox.RunBegins | inbox.RunMerged | inbox.RunRefused | inbox.RunYields
OfSessions = inbox.SessionAttached | OfTurns | OfTasks
"""What a session sends to a run."""
OfPeople = inbox.InputRequested | inbox.ResumeRequested
OfCalls = inbox.CallFinished | inbox.CallPaused
OfRuns = inbox.TimerFired | inbox.CancelRequested | inbox.TopUpRequested | inbox.RunResumed
Received = RunRequested | OfCalls | OfRuns | OfSessions | OfPeople | Poisoned


@dataclass(frozen=True, slots=True)
class Incoming:
    """One delivery of a message, as its handling received it."""

    owner: str
    """`<stream>:<sequence>` of the message."""
    attempt_token: str
    """`asked` records carry it as `holder`, so a handling recognises its own model calls. Later ones have later ids."""
    message: Received
    is_first: bool = True
    """It was not delivered before. Then it is handled with the run that is cached, which may be outdated: an append
    shows that."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A request resolved against this deployment: the fact that opens its run, and the fault if it is refused."""

    started: events.RunStarted
    refusal: Fault | None = None
    checked: Checked = ADMITTED
    """What the agent's rules say of the question and of the inputs that came before."""
    inputs: int = 0
    """How many inputs that were."""


_CLEARED_BY_ASKED: dict[str, Any] = dict.fromkeys(("decision", "critique", "shown", "shown_seq", "unfinished"))


@dataclass(frozen=True)
class Progress:
    """What a handling has done so far. Each executed command and each appended record gives a new one."""

    now: int
    """Unix ms: the time that this handling acts on. Updated after each slow effect."""
    opening: Opening | None = None
    place: Place | None = None
    """The run's place in its session, once it is known."""
    notified: frozenset[str] = frozenset()
    """Names of the messages to the session that this handling has sent."""
    context_kept: bool = False
    began: bool = False
    opened: bool = False
    closed: bool = False
    specs: Mapping[str, ToolSpec] | None = None
    """The specifications of the run's tools, once loaded, to check a join against."""
    triaged: Triage | None = None
    critique: Critique | None = None
    decision: Decision | None = None
    """What the model's reply means, once it is complete."""
    answer_to_restate: Decision | None = None
    """An answer to stream again under a new attempt, without a model call."""
    asked: bool = False
    """This handling appended an `asked` record that has no decision yet."""
    shown: str | None = None
    """Of a request that never ended: the answer text that listeners have received, once it is read."""
    shown_seq: int | None = None
    """Sequence of the newest record of the turn on the run's stream, once `shown` is read; 0: none."""
    unfinished: Usage | None = None
    """What the turn's request has cost that never ended, estimated; None: not known yet."""
    answered: bool = False
    """The person who sent the message has the answer."""
    checked: Checked | None = None
    """Of an input: what the agent's rules say of its text."""
    decided: frozenset[str] = frozenset()
    """Ids of the requests whose decisions this handling recorded."""
    woken: bool = False
    timers: frozenset[tuple[inbox.TimerName, int]] = frozenset()
    announced: frozenset[str] = frozenset()
    """Rounds of calls (`round_id`) that this handling itself recorded, so no earlier handling can have sent them."""
    dispatched: frozenset[str] = frozenset()
    """Rounds of calls that this handling has sent."""
    outcomes: tuple[inbox.CallFinished, ...] = ()
    """Of direct calls that have ended, until they are recorded."""

    def but(self, **changes: Any) -> "Progress":
        """Return the progress with these changes, as `dataclasses.replace` does, in a tenth of its time."""
        assert changes.keys() <= self.__dict__.keys()  # noqa: S101, names of fields
        new = object.__new__(Progress)
        new.__dict__.update(self.__dict__, **changes)
        return new

    def wrote(self, written: Iterable[Event]) -> "Progress":
        """Return the progress after this handling appended events."""
        new = self
        for event in written:
            match event:
                case events.RunStarted():
                    new = new.but(began=True)
                case events.Asked():
                    restated = new.decision if new.decision is not None and new.decision.restate else None
                    new = new.but(answer_to_restate=restated, asked=True, **_CLEARED_BY_ASKED)
                case events.ModelFailed():
                    new = new.but(asked=False, decision=None)
                case events.Step(status="started"):
                    new = new.but(asked=False, decision=None, announced=new.announced | set(map(round_id, event.calls)))
                case events.Stopping():
                    # What was read before it may have grown until then.
                    new = new.but(shown=None, shown_seq=None, unfinished=None)
                case events.Called():
                    new = new.but(announced=new.announced | set(map(round_id, event.calls)))
                case (
                    events.Paused(id=str(request))
                    | events.Resumed(id=str(request))
                    | events.InputAdded(id=str(request))
                ):
                    new = new.but(decided=new.decided | {request})
                case events.Observed(call_id=recorded):
                    new = new.but(outcomes=tuple(each for each in new.outcomes if each.call_id != recorded))
                case _:
                    pass
        return new


@dataclass(frozen=True, slots=True)
class Handling:
    """One handling of a message: what it received, and what it has done so far."""

    incoming: Incoming
    progress: Progress

    def own_decision(self, run: Run) -> Decision | None:
        """Return the decision of the model call in flight, if this handling made the call."""
        return self.progress.decision if run.is_asked_by(self.incoming.attempt_token) else None


class StrategyRules(StrategyFold, ABC):
    """The part of a strategy in the rules of its runs, which know no more of it. None: the general rules hold."""

    @abstractmethod
    def on_step_ended(
        self, run: Run, handling: Handling, rules: "Rules", observed: Sequence[events.Observed] = ()
    ) -> list[Event]:
        """Return the events that follow when nothing is in flight and no budget is exhausted.

        It is called when the run opens, with an empty log, and when a step with its join has ended. `observed`: the
        outcomes in the record that is being made.
        """

    def on_decision(
        self, run: Run, handling: Handling, asked: events.Asked, decision: OwnDecision, rules: "Rules"
    ) -> list[Event]:
        """Return the events of a decision of the strategy's own kind."""
        raise NotImplementedError

    def on_outcome(
        self, run: Run, handling: Handling, rules: "Rules", observed: Sequence[events.Observed] = ()
    ) -> list[Event] | None:
        """Return the events that follow once no call is open any more; None: the join and the end of the step."""
        del run, handling, rules, observed
        return None

    def on_deadline(self, run: Run, handling: Handling, timer: inbox.TimerFired) -> "Command | None":
        """Return the next command for the timer of the deadline of a run that is not paused; None: the run ends."""
        del run, handling, timer
        return None

    def length(self, run: Run) -> Length:
        """Measure the conversation as the model receives it; empty where no model is asked."""
        del run
        return Length()


@dataclass(frozen=True, slots=True)
class Rules:
    """The strategy of a run, and settings that hold for all runs of a deployment."""

    strategy: StrategyRules
    max_repairs: int = 2
    max_provider_failures: int = 2
    """Retries of one model in one model call, before the next model is called."""
    first_pause_s: float = FIRST_PAUSE_S
    """Pause before the first retry; it doubles with each further one."""
    longest_pause_s: float = 20.0
    model_total_s: float = 900.0
    """Limit of one model call with its retries, fallbacks and waits."""
    max_characters: int = 400_000
    """Length above which a conversation with the model of the run is compacted."""
    direct: DirectRules | None = None
    """None: calls go through the stream CALLS."""
    key_spending: Spending | None = None
    """What the run's API key has spent; None: it has no budget, or that is not known yet."""


@dataclass(frozen=True, slots=True)
class Append:
    """Append these events to the log as one record, fenced by the sequence of its newest record."""

    events: list[Event]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a person's request on the run's stream. `code`: why it was refused; None: it took effect."""

    id: str
    code: str | None = None
    reason: str = ""
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class Enter:
    """Join the session of the run. `is_queued`: its log says that it waits; without that it only begins at once."""

    is_queued: bool


ToSession = (
    records.SessionRunEnded
    | records.SessionRunWaits
    | records.SessionInputTaken
    | records.SessionQueueExpired
    | records.SessionApproved
    | tasks.SessionTaskControl
)


@dataclass(frozen=True, slots=True)
class NotifySession:
    """Send a message to the run's session. `name`: of the message, once per run and fact."""

    name: str
    message: ToSession


@dataclass(frozen=True, slots=True)
class Resolve:
    """Resolve the request against this deployment, and wait some seconds for unavailable tools that its agent names."""


@dataclass(frozen=True, slots=True)
class CheckInput:
    """Apply the agent's rules to the text of an input, and see whether the model takes its images."""


@dataclass(frozen=True, slots=True)
class LoadSpecs:
    """Load the specifications of the run's tools, to check a join against."""


@dataclass(frozen=True, slots=True)
class KeepContext:
    """Store the caller's `tool_context` outside the log, before the run is opened, so that no crash loses it."""


@dataclass(frozen=True, slots=True)
class Open:
    """Write the run's index entry, and set the deadline timer of a run that has begun, unless that was done."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Call the model for this `asked` record."""

    asked: events.Asked


@dataclass(frozen=True, slots=True)
class Say:
    """Stream a known answer for this `asked` record, without a model call."""

    asked: events.Asked
    answer: Decision


@dataclass(frozen=True, slots=True)
class AskEffort:
    """Let a short model call choose the reasoning effort, and the model where the run names several."""

    asked: events.Asked


@dataclass(frozen=True, slots=True)
class AskCritique:
    """Let a model score the answer."""

    asked: events.Asked
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send these calls, and wait for direct ones. `again`: ids of calls that an earlier handling may have sent."""

    calls: list[events.PlannedCall]
    again: frozenset[str]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Schedule a timer message at a time, Unix ms. It replaces an earlier timer of the same name."""

    name: inbox.TimerName
    at: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a time, Unix ms, at most `MAX_WAIT_IN_EFFECT_S` from now."""

    until: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Publish `resumed` to the inbox consumer, since the control consumer never calls models.

    `at`: the time of the timer that is the reason, Unix ms; 0: there is none.
    """

    at: int = 0


@dataclass(frozen=True, slots=True)
class ReadShown:
    """Read the part of the turn's answer that is stored. No more of it can be added. Estimate what its request cost."""


@dataclass(frozen=True, slots=True)
class Close:
    """Write the final index entry of an ended run, and cancel its timers."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledge: this message is done."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop without ack, nak or heartbeat: another handling of this message has superseded this one."""


OfModels = Ask | Say | AskEffort | AskCritique | ReadShown
OfMessages = Enter | NotifySession | Answer | Dispatch | SetTimer | Wake
Effect = OfModels | OfMessages | Resolve | KeepContext | Open | CheckInput | LoadSpecs | Wait | Close
"""What the executor carries out."""
DECIDES_NOTHING = (Enter, Resolve, KeepContext, CheckInput, LoadSpecs)
"""Effects that may be carried out for an outdated run: an append follows, which the log then refuses."""
Command = Append | Effect | Ack | Abandon
