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
    """One handling of one message: what it received, and the fields of `Progress`."""

    owner: str
    kind: str
    attempt_token: str
    now: int
    started: RunStarted | None = None
    refusal: Fault | None = None
    request: RunRequested | None = None
    waited: bool = True
    """Of a request: it is resolved."""
    context: Mapping[str, Any] = field(default_factory=dict)
    finished: CallFinished | None = None
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    timer: TimerFired | None = None
    reason: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    top_up_id: str = ""
    triaged: Triage | None = None
    critique: Critique | None = None
    decision: Decision | None = None
    answer_to_restate: Final | None = None
    asked: bool = False
    kept: bool = False
    """The `tool_context` is stored."""
    opened: bool = False
    closed: bool = False
    shown: str | None = None
    shown_seq: int | None = None
    unfinished: Usage | None = None
    woken: bool = False
    timers: set[tuple[TimerName, int]] = field(default_factory=set)
    announced: set[str] = field(default_factory=set)
    dispatched: set[str] = field(default_factory=set)


def taken_apart(handling: Handling) -> commands.Handling:
    """As `advance` takes it."""
    same = {name: getattr(handling, name) for name in SAME}
    sets = {name: frozenset(same[name]) for name in ("timers", "announced", "dispatched")}
    message: commands.Received | str | None = handling.finished or handling.timer
    if handling.kind == "cancel":
        message = CancelRequested(reason=handling.reason)
    elif handling.kind == "top_up":
        message = TopUpRequested(id=handling.top_up_id, limits=dict(handling.limits))
    return attempt(
        handling.owner,
        message or handling.kind,
        handling.attempt_token,
        started=handling.started,
        refusal=handling.refusal,
        context=handling.context,
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
