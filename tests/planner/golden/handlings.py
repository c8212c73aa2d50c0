"""Handlings as the journals hold them: one bag of fields, taken apart for `advance` and put together for recording."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contracts.runs.events import RunStarted
from contracts.runs.inbox import CallFinished, CancelRequested, TimerFired, TimerName, TopUpRequested
from contracts.runs.payload import Usage
from contracts.runs.requests import RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from services.planner.run import commands
from services.planner.run.commands import Poisoned
from services.planner.run.turn.decision import Critique, Decision, Final, Triage
from tests.planner.handlings import attempt

SAME = (
    *("now", "triaged", "critique", "decision", "answer_to_restate", "asked", "opened", "closed", "shown", "woken"),
    *("shown_seq", "unfinished", "timers", "announced", "dispatched"),
)


@dataclass(slots=True)
class Handling:
    """One handling of one message. The handler stores what it received and what it has done; `advance` only reads."""

    owner: str
    """`<stream>:<sequence>` of the message."""
    kind: str
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
    shown_seq: int | None = None
    unfinished: Usage | None = None
    woken: bool = False
    timers: set[tuple[TimerName, int]] = field(default_factory=set)
    """Timers that this handling has set."""
    announced: set[str] = field(default_factory=set)
    """Ids of calls that this handling itself recorded, so no earlier handling can have sent them."""
    dispatched: set[str] = field(default_factory=set)


def taken_apart(handling: Handling) -> commands.Handling:
    """As `advance` takes it."""
    same = {name: getattr(handling, name) for name in SAME}
    sets = {name: frozenset(same[name]) for name in ("timers", "announced", "dispatched")}
    return attempt(
        handling.owner,
        handling.kind,
        handling.attempt_token,
        started=handling.started,
        refusal=handling.refusal,
        context=handling.context,
        finished=handling.finished,
        timer=handling.timer,
        reason=handling.reason,
        limits=handling.limits,
        top_up_id=handling.top_up_id,
        specs=handling.specs,
        context_kept=handling.kept,
        **{**same, **sets},
    ).handling


def put_together(handling: commands.Handling) -> Handling:
    """As a journal holds it."""
    incoming, progress = handling.incoming, handling.progress
    message, opening = incoming.message, progress.opening
    made = Handling(incoming.owner, _kind(message), incoming.attempt_token, progress.now)
    for name in SAME:
        value = getattr(progress, name)
        setattr(made, name, set(value) if isinstance(value, frozenset) else value)
    made.kept, made.specs = progress.context_kept, progress.specs or {}
    if isinstance(message, RunRequested):
        made.request, made.context, made.waited = message, message.tool_context, opening is not None
    if opening is not None:
        made.started, made.refusal = opening.started, opening.refusal
    if isinstance(message, CallFinished):
        made.finished = message
    if isinstance(message, TimerFired):
        made.timer = message
    if isinstance(message, CancelRequested):
        made.reason = message.reason
    if isinstance(message, TopUpRequested):
        made.limits, made.top_up_id = message.limits, message.id
    return made


def _kind(message: commands.Received) -> str:
    if isinstance(message, RunRequested):
        return "request"
    return "poisoned" if isinstance(message, Poisoned) else message.kind
