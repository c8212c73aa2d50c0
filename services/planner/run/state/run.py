"""The state of a run, and who owns what in it. Pure: no clock, no await, no randomness.

A message owns work, and it is identified by its stream sequence:

- not by a process;
- not by a delivery count, which may be lost;
- not by a message id: a sender's retry after the deduplication window stores one id twice, and two messages with one id
  would supersede each other without end.

- `asked {by, holder}`: message `by` owns this model call; `holder` is the attempt token of the handling that streams
  it. A second handling of the same message proves that the first one has died or lost its connection: it calls the
  model again, under attempt + 1. Every other message appends its own fact, leaves the call alone and acknowledges. A
  superseded handling stops without ack, nak or heartbeat.
- `step {by, calls}`, `called {by, calls}`: message `by` owns the dispatch of these calls. A further handling of `by`
  sends the calls that are still open.
- After a terminal fact only `deleted` may be appended. It replaces the log.

`fold.fold` makes the state from the log; `advance.advance` decides what a message may do next.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from contracts.runs import events
from contracts.runs.events import Asked, KnownEvent, Observed, Paused, PlannedCall, Repaired, RunStarted, Step
from contracts.runs.pauses import OpenPause
from contracts.runs.payload import Usage
from contracts.runs.requests import RunLimits, RunRequested, State, Waits
from contracts.sessions.proposals import PayloadKept
from contracts.sessions.tasks import Reservation
from contracts.wire.faults import Fault
from services.planner.run.state.history import Collected, Conversation, History, ToolImage
from services.planner.run.state.people import AddedInputs, PauseDecisions


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


NOTHING_SPENT = Usage(cost_usd=0.0)
Event = KnownEvent
"""What a planner writes. A log may also hold events of a newer version, which `fold` ignores."""


@dataclass(frozen=True, slots=True)
class StrategyState:
    """What the strategy of a run keeps of the log: this base, or the strategy's own subclass with fields of its own.

    The rules of a run store the state and never look inside. Only the strategy's `fold` makes a new one. The properties
    are all that the rules ask of it.
    """

    has_parts: ClassVar[bool] = False
    """Whether all replies of the run are parts of one message."""
    shown_to: int = field(default=0, kw_only=True)
    """The length of that message so far, in code points."""

    @property
    def is_late(self) -> bool:
        """Whether the deadline has halted the calls of the run, so that its answer ends a run out of budget."""
        return False

    @property
    def ran(self) -> str | None:
        """What came of calls before the request to the model in flight; the fault of a failed request quotes it."""
        return None

    def after(self, said: str, shown_to: int) -> "StrategyState":
        """Return the state after one more part: its raw text, and the length of the message then."""
        del said, shown_to
        return self

    def final_args(self, run: "Run", shown: str = "", *, is_whole: bool = True) -> dict[str, Any] | None:
        """Return what the parts add up to, as arguments of a final response; None: they are no parts of one message.

        `shown`: what listeners have received of a part that never ended. `is_whole`: False for the text that was shown
        alone, as of a run that is cancelled.
        """
        del run, shown, is_whole
        return None


@dataclass(slots=True)
class Run:
    """The state that the log adds up to. `seq`: sequence of its newest record, which fences the next append."""

    seq: int = 0
    queued: events.Queued | None = None
    """The run has waited for its turn in its session."""
    attached: str | None = None
    """The session that continues from this run, which was requested without one."""
    started: RunStarted | None = None
    started_at: int = 0
    effort: str | None = None
    """Reasoning effort, once known; `auto` until a triage has chosen one."""
    model: str = ""
    limits: RunLimits = field(default_factory=RunLimits)
    """In effect now, top-ups included."""
    deadline_at: int | None = None
    """Unix ms."""
    last_handling: dict[str, str] = field(default_factory=dict)
    """Message -> the attempt token of its latest handling that has recorded one."""
    topped_up_by: set[str] = field(default_factory=set)
    """Ids of the top-ups that are in effect."""
    turn: int = 0
    asked: Asked | None = None
    """The model call in flight."""
    turn_seq: int = 0
    """Sequence of the first record of the turn. Its chunks have higher sequences."""
    turn_at: int = 0
    """Unix ms of the first model call of this turn."""
    stopping: events.Stopping | None = None
    """A cancel superseded the model call. The run ends once the stored part of the answer is read."""
    paused: Paused | None = None
    """The wait for a top-up, which has no `pause_id`: which budget is exhausted, and until when the run waits."""
    pauses: dict[str, Paused] = field(default_factory=dict)
    """Open pauses with a `pause_id`, in the order in which they were opened."""
    pause_decisions: PauseDecisions = field(default_factory=PauseDecisions)
    of_tasks: dict[str, events.TasksPaused] = field(default_factory=dict)
    """By call that waits for tasks: what these need of people."""
    waits_for_tasks: bool = False
    """It does nothing but wait for people whom its tasks need, too. Its deadline does not stand still."""
    turn_news_seq: int = 0
    """Of a report: sequence of the session's newest record that gave its turn away, or back to it; 0: none did."""
    yields: bool = False
    """Another run has its turn: it asks no model."""
    waits_since: int | None = None
    """Unix ms since when the run does nothing but wait for people; None: it does not."""
    waits_seq: int = 0
    """Sequence of the newest record that changed the open pauses, or whether the run waits for them; 0: none did."""
    interrupted: Asked | None = None
    """The model call that a pause or a new question ended. It is repeated when the run resumes."""
    inputs: AddedInputs = field(default_factory=AddedInputs)
    lost: int = 0
    """Attempts of this turn that ended with their process."""
    repairs: int = 0
    """Repairs of this turn."""
    calling: str = ""
    """The model of this turn's newest request, or of the one that follows its failure."""
    call_at: int = 0
    """Unix ms when the newest model call began; its retries and fallbacks do not count as new calls."""
    failed: list[events.ModelFailed] = field(default_factory=list)
    """Failed requests of that call."""
    retry: events.ModelFailed | None = None
    """The failed request whose retry, or fallback, is due at its `retry_at`. No model call is in flight meanwhile."""
    step: Step | None = None
    """The newest decision."""
    step_at: int = 0
    open: dict[str, PlannedCall] = field(default_factory=dict)
    """Calls without an outcome, waiting ones included."""
    owner: dict[str, str] = field(default_factory=dict)
    """Call id -> the message that owns its dispatch. Calls that wait for a free place are absent."""
    announced_at: dict[str, int] = field(default_factory=dict)
    """Call id -> time of the record that made it a call of its owner, Unix ms by the clock of its writer."""
    observed: dict[str, Observed] = field(default_factory=dict)
    """Outcomes of the newest step, by call id."""
    strategy_state: StrategyState = StrategyState()
    joined: bool = False
    concluded: bool = True
    """The newest step has ended."""
    history: History = field(default_factory=History)
    """The conversation with the model; empty once the run has ended, since no model is asked any more."""
    conversation: Conversation | None = None
    """What was said before, which begins the history. It is no fact of this log: `RunLogs` adds it to an open run."""
    shown: str = ""
    """Of a turn without a decision: the answer as listeners have it. It is no fact of the log: `advance` adds it."""
    compactions: int = 0
    """Compactions of this turn after a context overflow."""
    rejected: list[Repaired] = field(default_factory=list)
    """Replies of this turn that were not accepted. They end the conversation and are dropped with the turn."""
    revisions: int = 0
    """Revisions of the answer after a critique."""
    judged: dict[str, Any] | None = None
    """The judged answer that is being revised: its arguments, with the score."""
    final_args: dict[str, Any] | None = None
    """The other fields of a final response whose text is being asked for alone."""
    usage: Usage = field(default_factory=Usage)
    set_aside: dict[str, Reservation] = field(default_factory=dict)
    """Call id -> part of the limits that belongs to the background task which the call spawned, until it has ended."""
    spent_by_tasks: Usage = NOTHING_SPENT
    """What background tasks that have ended took of the limits."""
    collected: Collected = field(default_factory=Collected)
    last_observation: Any = None
    warnings: list[str] = field(default_factory=list)
    payloads: list[PayloadKept] = field(default_factory=list)
    """What its answer proposes or shows beside the text, without the data."""
    tool_images: list[ToolImage] = field(default_factory=list)
    """Images of results in the conversation."""
    terminal: events.Done | events.Error | events.Cancelled | None = None
    ended_at: int = 0

    @property
    def request(self) -> RunRequested | None:
        """The request, without `tool_context`; None while the log does not hold it."""
        if self.started is not None:
            return self.started.request
        return self.queued.request if self.queued is not None else None

    @property
    def opened(self) -> RunStarted:
        """The fact that opened it: in every log it precedes whatever asks a model or calls a tool."""
        assert self.started is not None  # noqa: S101, see above
        return self.started

    @property
    def state(self) -> State:
        """Its state while it has not ended, as lists show it."""
        return "running" if self.started is not None else "queued"

    @property
    def waits(self) -> Waits | None:
        """How it waits while it has not ended, as lists show it."""
        return "waiting" if self.pauses or self.paused_by_tasks else "paused" if self.paused is not None else None

    @property
    def session_id(self) -> str | None:
        """The session that receives the end of the run; None without one."""
        return self.attached or (self.request.session_id if self.request is not None else None)

    @property
    def has_images(self) -> bool:
        """Whether the conversation shows images."""
        return bool(self.tool_images or self.inputs.images or (self.started is not None and self.started.images))

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing goes on but that it waits: for a person, or for its turn."""
        return self.waits_since is not None or (self.queued is not None and self.started is None)

    @property
    def undecided(self) -> bool:
        """Whether the turn has no decision yet. A part of an answer may be streamed already."""
        return self.turn > (self.step.step if self.step is not None else 0)

    def while_paused(self, *facts: Event) -> list[Event]:
        """Return facts that do not end a wait for a top-up: its pause stands behind them again."""
        return [*facts, *([self.paused] if self.paused is not None else [])]

    @property
    def paused_by_tasks(self) -> set[str]:
        """The calls that wait for tasks which wait for people."""
        return {call for call, told in self.of_tasks.items() if told.pauses}

    def is_news(self, paused: events.TasksPaused) -> bool:
        """Whether what the tasks of an open call need of people is news."""
        known = self.of_tasks.get(paused.call_id)
        return paused.call_id in self.open and (paused.seq > known.seq if known else bool(paused.pauses))

    def held_results(self, pause_id: str | None) -> OpenPause | None:
        """Return what waits for a decision about results of tasks; None: nothing under this id, or it was decided."""
        started, closed = self.started, self.pause_decisions.closed
        waiting = [each for told in self.of_tasks.values() for each in told.pauses if each.pause_id == pause_id]
        own = (each for each in waiting if started is not None and each.run_id == started.run_id)
        return next((each for each in own if each.pause_id not in closed), None)

    def is_asked_by(self, attempt_token: str) -> bool:
        """Whether the handling with this token still owns the model call in flight."""
        asked = self.asked if self.terminal is None else None
        return asked is not None and attempt_token == asked.holder == self.last_handling.get(asked.by, attempt_token)


def begin_history(run: Run, conversation: Conversation) -> None:
    """Add what was said before the run, unless the run has it or has ended."""
    if run.conversation is None and run.terminal is None:
        run.conversation = conversation
        run.history.items.insert(0, conversation)  # It has not been rendered yet.


def take_in(run: Run, observed: Observed) -> None:
    """Add an outcome to the payload of the run."""
    run.collected.take(observed)
    run.warnings += observed.warnings
    if observed.status == "succeeded":
        run.last_observation = observed.observation


def waiting_calls(run: Run) -> list[PlannedCall]:
    """The calls of the step that may be started and are not: they exceed `max_parallel`, or were approved since."""
    held = {paused.call_id for paused in run.pauses.values()}
    return [call for call in run.open.values() if call.call_id not in run.owner and call.call_id not in held]


def round_id(call: PlannedCall) -> str:
    """Return the name of one round of a call. A call that its tool pauses is sent again, as its next round."""
    return f"{call.call_id}.{call.round}" if call.round else call.call_id
