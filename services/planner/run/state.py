"""The run as a fold of its log. Pure: no clock, no await, no randomness.

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

This module folds the log; `advance.advance` decides what a message may do next.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from contracts import events
from contracts.events import (
    Asked,
    Called,
    Compacted,
    KnownEvent,
    Observed,
    Paused,
    PlannedCall,
    Repaired,
    RunEvent,
    RunStarted,
    Step,
    ToppedUp,
    Triaged,
)
from contracts.payload import FinalPayload, Usage
from contracts.runs import RunLimits, RunRequested
from services.planner.run.collected import Collected
from services.planner.run.history import (
    Compaction,
    Conversation,
    Decided,
    History,
    ImagesShown,
    Outcomes,
    Question,
    ToolImage,
)
from services.planner.run.pause_decisions import PauseDecisions, called_again
from services.planner.run.tool_images import allowed_images
from services.shared.usage import spent

Event = KnownEvent
"""What a planner writes. A log may also hold events of a newer version, which `fold` ignores."""


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
    """Why and until when the run waits for a person."""
    pauses: dict[str, Paused] = field(default_factory=dict)
    """Open pauses with a `pause_id`, in the order in which they were opened."""
    pause_decisions: PauseDecisions = field(default_factory=PauseDecisions)
    """What people decided about the run's pauses."""
    waits_since: int | None = None
    """Unix ms since when the run does nothing but wait for people; None: it does not."""
    waits_seq: int = 0
    """Sequence of the newest record that changed the open pauses, or whether the run waits for them; 0: none did."""
    interrupted: Asked | None = None
    """The model call that a pause ended. It is repeated when the run resumes."""
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
    joined: bool = False
    concluded: bool = True
    """The newest step has ended."""
    history: History = field(default_factory=History)
    """The conversation with the model; empty once the run has ended, since no model is asked any more."""
    conversation: Conversation | None = None
    """What was said before, which begins the history. It is no fact of this log: `RunLogs` adds it to an open run."""
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
    collected: Collected = field(default_factory=Collected)
    """Artifacts and sources of all calls."""
    last_observation: Any = None
    warnings: list[str] = field(default_factory=list)
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
    def session_id(self) -> str | None:
        """The session that is told how the run ends; None without one."""
        return self.attached or (self.request.session_id if self.request is not None else None)

    @property
    def has_images(self) -> bool:
        """Whether the conversation shows images."""
        return bool(self.tool_images or (self.started is not None and self.started.images))

    @property
    def undecided(self) -> bool:
        """Whether the turn has no decision yet. A part of an answer may be streamed already."""
        return self.turn > (self.step.step if self.step is not None else 0)

    def is_asked_by(self, attempt_token: str) -> bool:
        """Whether the handling with this token still owns the model call in flight."""
        return self.terminal is None and self.asked is not None and self.asked.holder == attempt_token


def begin_history(run: Run, conversation: Conversation) -> None:
    """Add what was said before the run, unless the run has it or has ended."""
    if run.conversation is None and run.terminal is None:
        run.conversation = conversation
        run.history.begin_with(conversation)


def fold(run: Run, seq: int, at: int, happened: Iterable[RunEvent]) -> None:
    """Apply one record: its sequence, its writer's time (Unix ms) and its events. An unknown event changes nothing."""
    run.seq = seq
    waited, had = run.waits_since is not None, [*run.pauses.values()]
    for event in happened:
        take = _FOLDS.get(event.type)
        if take is not None:
            take(run, event, at)
    if had or run.pauses:
        _note_waiting(run, at, changed=had != [*run.pauses.values()], waited=waited)


def _note_waiting(run: Run, at: int, *, changed: bool, waited: bool) -> None:
    """Note since when the run does nothing but wait for people, after a record at `at`, Unix ms."""
    works = run.asked or run.retry or run.owner or waiting_calls(run)
    waits = bool(run.pauses) and not works
    run.waits_since = (run.waits_since or at) if waits else None
    if changed or waits != waited:
        run.waits_seq = run.seq


def waiting_calls(run: Run) -> list[PlannedCall]:
    """The calls of the step that may be started and are not: they exceed `max_parallel`, or were approved since."""
    held = {paused.call_id for paused in run.pauses.values()}
    return [call for call in run.open.values() if call.call_id not in run.owner and call.call_id not in held]


def _fold_started(run: Run, started: RunStarted, at: int) -> None:
    if run.started is not None or run.terminal is not None:
        # The log of an earlier run with this id, as of a repeated idempotency key, was purged.
        new = Run(seq=run.seq)
        for each in fields(Run):
            setattr(run, each.name, getattr(new, each.name))
    run.started_at = at
    run.started, run.effort, run.model = started, started.effort, started.model
    run.limits, run.deadline_at = started.limits, started.deadline_at
    run.warnings += started.warnings
    run.history.add(Question(started.request, tuple(started.images)))


def _fold_queued(run: Run, queued: events.Queued, _at: int) -> None:
    run.queued = queued


def _fold_attached(run: Run, attached: events.Attached, _at: int) -> None:
    run.attached = attached.session_id


def _fold_triaged(run: Run, triaged: Triaged, _at: int) -> None:
    run.effort, run.model = triaged.effort, triaged.model or run.model
    run.calling = run.model
    if run.asked is not None:
        run.asked = run.asked.model_copy(update={"model": run.model})
    run.usage = spent(run.usage, triaged.usage)


def _fold_compacted(run: Run, compacted: Compacted, _at: int) -> None:
    overflowed = compacted.cause == "overflow"
    run.history.add(Compaction(compacted.line_characters, newest=overflowed))
    run.compactions += overflowed


def _fold_terminal(run: Run, terminal: events.Done | events.Error | events.Cancelled, at: int) -> None:
    run.terminal, run.ended_at, run.asked, run.retry, run.paused = terminal, at, None, None, None
    run.pauses.clear()
    run.history = History()


def _fold_deleted(run: Run, _deleted: events.Deleted, at: int) -> None:
    # `started` goes, so that no planner that still has the run in its cache writes its index entry again.
    run.started = run.queued = None
    _fold_terminal(run, run.terminal or events.Cancelled(reason="deleted", payload=FinalPayload(raw_answer="")), at)


def _fold_paused(run: Run, paused: Paused, _at: int) -> None:
    if paused.pause_id is not None:
        run.pauses[paused.pause_id] = paused
        run.owner.pop(paused.call_id or "", None)
        run.pause_decisions.take_pause(paused)
        return
    if run.asked is not None:
        run.interrupted, run.asked = run.asked, None
    run.paused = paused


def _fold_stopping(run: Run, stopping: events.Stopping, _at: int) -> None:
    run.stopping, run.asked, run.retry = stopping, None, None


def _fold_topped_up(run: Run, topped_up: ToppedUp, _at: int) -> None:
    run.limits, run.deadline_at = topped_up.limits, topped_up.deadline_at
    run.topped_up_by.add(topped_up.by)
    run.waits_since = None  # The deadline counts from now.


def _fold_resumed(run: Run, resumed: events.Resumed, at: int) -> None:
    run.call_at = at
    if resumed.pause_id is None:
        run.paused = None
        return
    if resumed.deadline_at is not None:
        run.deadline_at, run.waits_since = resumed.deadline_at, None
    paused = run.pauses.pop(resumed.pause_id, None)
    if paused is not None:
        run.pause_decisions.take_decision(paused, resumed)
        call = run.open.get(paused.call_id or "")
        if call is not None:
            run.open[call.call_id] = called_again(call, paused, resumed)


def _fold_asked(run: Run, asked: Asked, at: int) -> None:
    if asked.turn != run.turn:
        run.turn_seq, run.turn_at = run.seq, at
        run.lost = run.repairs = run.compactions = 0
        run.rejected.clear()
    elif asked.cause == "lost":
        run.lost += 1
    if asked.cause != "provider":
        run.call_at = at
        if asked.cause != "lost":
            run.failed.clear()
    run.turn, run.asked, run.interrupted, run.retry = asked.turn, asked, None, None
    run.calling = asked.model or run.model


def _fold_step(run: Run, step: Step, at: int) -> None:
    if step.status != "started":
        _conclude(run, step)
        return
    run.asked, run.step, run.step_at, run.joined = None, step, at, False
    run.observed, run.final_args, run.concluded = {}, None, not step.calls
    run.rejected.clear()
    run.open = {call.call_id: call for call in step.calls}
    run.owner = {call.call_id: step.by or "" for call in step.calls[: run.limits.max_parallel]}
    run.announced_at = dict.fromkeys(run.owner, at)
    run.collected.expect(step.calls)
    run.usage = spent(run.usage, step.usage, tool_calls=len(step.calls))
    run.warnings += step.warnings
    if step.calls or step.answer is not None:
        run.history.add(Decided(step))


def _conclude(run: Run, step: Step) -> None:
    """Apply the end of a step. A skipped or invalid step has no `started` event before it."""
    run.concluded = True
    if step.status in {"skipped", "invalid"}:
        run.asked = None
        run.usage = spent(run.usage, step.usage)
    elif run.observed and run.step is not None:
        run.history.add(Outcomes(run.step, tuple(run.observed.values()), step.note))
        policy = run.started.vision_context if run.started else None
        if shown := allowed_images(policy, run.observed.values(), run.tool_images):
            run.tool_images += shown
            run.history.add(ImagesShown(tuple(shown)))


def _fold_called(run: Run, called: Called, at: int) -> None:
    for call in called.calls:
        run.open[call.call_id] = call
        run.owner[call.call_id], run.announced_at[call.call_id] = called.by, at
    run.collected.expect(called.calls)
    if called.join:
        run.joined = True
        run.usage = spent(run.usage, None, tool_calls=len(called.calls))


def _fold_observed(run: Run, observed: Observed, _at: int) -> None:
    run.open.pop(observed.call_id, None)
    run.owner.pop(observed.call_id, None)
    run.observed[observed.call_id] = observed
    take_in(run, observed)


def take_in(run: Run, observed: Observed) -> None:
    """Add an outcome to the payload of the run."""
    run.collected.take(observed)
    run.warnings += observed.warnings
    if observed.status == "succeeded":
        run.last_observation = observed.observation


def _fold_model_failed(run: Run, failed: events.ModelFailed, _at: int) -> None:
    if failed.usage is not None:
        run.usage = spent(run.usage, failed.usage)
    run.failed.append(failed)
    run.calling = failed.next_model
    if failed.retry_at is not None:
        run.asked, run.retry = None, failed
    elif run.asked is not None and run.asked.attempt == failed.attempt:
        # An older version: the attempt goes on, with the next model.
        run.asked = run.asked.model_copy(update={"model": failed.next_model})


def _fold_repaired(run: Run, repaired: Repaired, _at: int) -> None:
    run.usage = spent(run.usage, repaired.usage, repairs=1)
    run.rejected.append(repaired)
    if repaired.kind == "answer":
        run.final_args = repaired.args or {}
    elif repaired.kind == "revision":
        run.revisions += 1
        run.judged = repaired.args or run.judged
    else:
        run.repairs += 1


_FOLDS: dict[str, Callable[[Run, Any, int], None]] = {
    "queued": _fold_queued,
    "attached": _fold_attached,
    "run_started": _fold_started,
    "triaged": _fold_triaged,
    "asked": _fold_asked,
    "step": _fold_step,
    "called": _fold_called,
    "observed": _fold_observed,
    "model_failed": _fold_model_failed,
    "repaired": _fold_repaired,
    "compacted": _fold_compacted,
    "paused": _fold_paused,
    "topped_up": _fold_topped_up,
    "stopping": _fold_stopping,
    "resumed": _fold_resumed,
    "done": _fold_terminal,
    "error": _fold_terminal,
    "cancelled": _fold_terminal,
    "deleted": _fold_deleted,
}
"""The events that change the run. All others are for listeners only."""
