"""Handlings of messages in the hands of a test: each holds what came in, and a test notes what has been done."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import count
from typing import Any

from contracts.runs import inbox
from contracts.runs.events import RunStarted
from contracts.runs.pauses import OpenPause, TasksPaused
from contracts.runs.payload import Usage
from contracts.runs.requests import RunRequested
from contracts.wire.faults import Fault
from services.planner.run import advance as module
from services.planner.run import commands
from services.planner.run.commands import Command, Handling, Incoming, Opening, Progress, Received, Rules
from services.planner.run.people.input_rules import ADMITTED
from services.planner.run.state.run import Event, Run, round_id

PROGRESS = frozenset(field.name for field in fields(Progress))
_TOKENS = count(1)
_REQUEST = RunRequested(run_id="0" * 32, tenant="default", requested_at=0, trace_id="t" * 32, query="what?")
_PAUSE = OpenPause(pause_id="p", run_id="0" * 32, reason="approval", source="policy", expires_at=9)
MESSAGES: dict[str, Received] = {
    "call_finished": inbox.CallFinished(call_id="1-1", tool="work", status="succeeded"),
    "timer": inbox.TimerFired(timer="deadline"),
    "cancel": inbox.CancelRequested(),
    "top_up": inbox.TopUpRequested(id="", limits={}),
    "decision": inbox.ResumeRequested(id="r", pause_id="p", token="t", decision="approve"),
    "input": inbox.InputRequested(id="i", text="more"),
    "call_paused": inbox.CallPaused(call_id="1-1", tool="work", round=0, number=0, reason="input", expires_in_s=60),
    "task_settled": inbox.RunTaskSettled(call_id="1-1", task_id="0" * 32, spent=Usage()),
    "tasks_paused": inbox.RunTasksPaused(paused=TasksPaused(call_id="1-1", seq=5, pauses=[_PAUSE])),
    "resumed": inbox.RunResumed(),
    "poisoned": commands.Poisoned(),
}
"""Messages of which a test says the name alone."""


def later_token() -> str:
    """Return an attempt token that is greater than all before it."""
    return f"t{next(_TOKENS):09d}"


class Attempt:
    """One handling. The fields of its progress may be set like attributes."""

    def __init__(self, incoming: Incoming, progress: Progress) -> None:
        self.__dict__.update(incoming=incoming, progress=progress)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["progress" if name in PROGRESS else "incoming"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["progress"] = replace(self.__dict__["progress"], **{name: value})

    @property
    def handling(self) -> Handling:
        """As `advance` takes it."""
        return Handling(self.__dict__["incoming"], self.__dict__["progress"])

    def wrote(self, events: Iterable[Event]) -> None:
        self.__dict__["progress"] = self.__dict__["progress"].wrote(events)

    def again(self, attempt_token: str) -> "Attempt":
        """Return another handling of the same message, at the same time."""
        progress: Progress = self.__dict__["progress"]
        new = Progress(progress.now, opening=progress.opening, specs=progress.specs)
        return Attempt(replace(self.__dict__["incoming"], attempt_token=attempt_token, is_first=False), new)

    def carry_out(self, command: Command) -> None:  # noqa: C901, one case for each command
        """Note what the executor would have done. Calls of models are left to the test."""
        match command:
            case commands.KeepContext():
                self.context_kept = True
            case commands.Open():
                self.opened = True
            case commands.Close():
                self.closed = True
            case commands.Say(_, answer):
                self.decision, self.answer_to_restate = replace(answer, restate=False), None
            case commands.Dispatch(sent, _):
                self.dispatched |= set(map(round_id, sent))
            case commands.ReadShown():
                self.shown, self.shown_seq, self.unfinished = "seen", 1, Usage(cost_usd=0.0)
            case commands.SetTimer(name, at):
                self.timers |= {(name, at)}
            case commands.Wait(until):
                self.now = max(self.__dict__["progress"].now, until)
            case commands.CheckInput():
                self.checked = ADMITTED
            case commands.Answer():
                self.answered = True
            case commands.NotifySession(name, _):
                self.notified |= {name}
            case commands.Wake():
                self.woken = True


def advance(run: Run, played: Attempt, rules: Rules) -> Command:
    return module.advance(run, played.handling, rules)


def attempt(
    owner: str,
    message: Received | str = "request",
    attempt_token: str = "h",
    now: int = 2000,
    *,
    started: RunStarted | None = None,
    refusal: Fault | None = None,
    context: Mapping[str, Any] | None = None,
    **progress: Any,
) -> Attempt:
    """A handling that has just begun, of a message or of the one with this name. A request is resolved."""
    if message == "request":
        request = started.request if started is not None else _REQUEST
        message = request.model_copy(update={"tool_context": dict(context or {})})
    elif isinstance(message, str):
        message = MESSAGES[message]
    opening = Opening(started, refusal) if started is not None else None
    return Attempt(
        Incoming(owner, attempt_token, message),
        Progress(**{"now": now, "opening": opening, "specs": {}, **progress}),
    )
