"""Pauses that wait for people: how they are opened, decided and expire; and when an answer does not end its run. Pure.

Rule 1: decisions and timers arrive at the control consumer, which calls no model and no tool. They append facts,
answer, and send `RunResumed` to the inbox; the handling of that message makes the approved calls, or ends the step.
Rule 2: a decision is about what its token names. The facts of a decision hold the request's id, so a repeated request
finds that it took effect.
Rule 3: while nothing but pauses is open the run's deadline stands still: the decision that ends the wait moves it.
Rule 4: no run ends with an answer while an input is unread, unless a budget forbids another request to the model.
Rule 5: with `followup: pause` an answer that requires a follow-up waits for the user's reply. If none comes, or the
user rejects the question, the run ends with that answer.
"""

import hashlib
from typing import Any

from contracts.runs.events import TERMINAL, Done, InputAdded, Observed, Paused, Resumed, TasksPaused
from contracts.runs.inbox import CallPaused, ResumeRequested
from contracts.runs.pauses import DEFAULT_PAUSE_S, MAX_PAUSE_S, MAX_STATE_BYTES, PauseDecision, pause_id
from contracts.sessions.records import ApprovedForSession, RunWaits, SessionApproved, SessionRunWaits
from contracts.wire.base import MAX_ARGUMENT_BYTES, MAX_INLINE_BYTES
from contracts.wire.faults import Fault
from services.planner.run import commands
from services.planner.run.calls import starting
from services.planner.run.calls.tasks import SHOWN_NAMES
from services.planner.run.commands import Ack, Append, Command, Handling, Progress
from services.planner.run.ending import budgets, terminal
from services.planner.run.people.input_rules import input_refused
from services.planner.run.state.people import MAX_SHOWN_CHARACTERS, asks_consent, is_refused, with_answer_token
from services.planner.run.state.run import Event, Run
from services.shared.json_schema.checks import complaints
from services.shared.redaction.json_values import wire_size
from services.shared.runs.waiting import pause_view

REPLY_SCHEMA = {"type": "string", "minLength": 1}
MAX_TITLE_CHARACTERS = 200


def after_answer(run: Run, done: Done, args: dict[str, Any], now: int) -> list[Event]:
    """Return what follows this answer: its `Done`, or else a pause or nothing, and the run continues.

    `args`: of the final response. `now`: Unix ms.
    """
    if run.inputs.unread:
        if (budget := budgets.spent_for_step(run, now)) is None:
            return []
        if run.limits.grace_s > 0:
            return [budgets.out_of(run, budget, now)]
        warning = f"{len(run.inputs.unread)} inputs came too late to be read: {budget}"
        return [done.model_copy(update={"warnings": [*done.warnings, warning]})]
    if run.started is not None and run.started.followup == "pause" and done.requires_followup:
        return [_asks_user(run, done, args, now)]
    return [done]


def _asks_user(run: Run, done: Done, args: dict[str, Any], now: int) -> Paused:
    lines = done.raw_answer.strip().splitlines()
    pause = Paused(
        reason="input",
        source="planner",
        until=now + int(DEFAULT_PAUSE_S * 1000),
        pause_id=pause_id(run.opened.run_id, f"step-{run.turn}", 0),
        title=lines[0][:MAX_TITLE_CHARACTERS] if lines else "",
        payload={"answer": done.raw_answer[:MAX_SHOWN_CHARACTERS]},
        state=args if wire_size(args) <= MAX_STATE_BYTES else {},
        input_schema=REPLY_SCHEMA,
        step=run.turn,
    )
    return with_answer_token(run.opened, pause)


def end_after_rejection(run: Run, paused: Paused, note: str) -> Event | None:
    """Return the end of a run whose own question, or whose user's text, was rejected; None for any other pause."""
    if paused.call_id is not None or paused.source not in {"planner", "policy"}:
        return None
    if paused.source == "planner":
        return terminal.answered(run, paused.state or {**terminal.given_answer(run), "requires_followup": True})
    return terminal.failed(run, input_refused(paused.rule or "", note))


BY_TIMER = "timer"
_OF_TOOL = {"reason", "title", "payload", "input_schema", "default", "default_answer", "number", "round", "state"}
"""What a pause has from the message of its tool."""
_OF_REQUEST = {"id", "request_sha256", "by"}
"""What each fact of a decision has from the request."""


def of_call(run: Run, handling: Handling, message: CallPaused) -> Append | None:
    """Return the record of a tool's pause; None if that round of the call is over already."""
    call = run.open.get(message.call_id)
    if run.started is None or call is None or call.call_id not in run.owner or call.round != message.round:
        return None
    pause = Paused(
        **message.model_dump(include=_OF_TOOL),
        until=handling.progress.now + int(min(message.expires_in_s, MAX_PAUSE_S) * 1000),
        pause_id=pause_id(run.started.run_id, call.call_id, message.round),
        source="tool",
        call_id=call.call_id,
        tool=call.tool,
        arguments=call.args,
        step=run.step.step if run.step is not None else None,
    )
    return Append(run.while_paused(with_answer_token(run.started, pause)))


def on_decision(run: Run, handling: Handling, request: ResumeRequested) -> Command:
    """Return the next command for a person's decision."""
    progress, known = handling.progress, run.pause_decisions.requests.get(request.id)
    if known is not None and known != request.request_sha256:
        return _refuse(progress, request, "idempotency_conflict", "another request with this id took effect")
    if known is not None:
        if not progress.answered:
            return commands.Answer(request.id, is_repeated=request.id not in progress.decided)
        return Ack() if run.terminal is not None else after_decision(run, progress)
    if run.terminal is not None or run.stopping is not None:
        return _refuse(progress, request, "run_ended", "the run has ended")
    if expired := expire(run, progress.now):
        return expired
    return _decided(run, handling, request)


def _refuse(progress: Progress, request: ResumeRequested, code: str, reason: str) -> Command:
    return Ack() if progress.answered else commands.Answer(request.id, code, reason)


def _decided(run: Run, handling: Handling, request: ResumeRequested) -> Command:
    progress, paused = handling.progress, run.pauses.get(request.pause_id)
    if (held := run.held_results(request.pause_id)) is not None:
        paused = Paused(**held.model_dump(include=set(Paused.model_fields)), until=held.expires_at)
    if paused is None:
        if request.pause_id in run.pause_decisions.closed | run.pause_decisions.of_tasks:
            return _refuse(progress, request, "pause_closed", "the pause is over")
        return _refuse(progress, request, "not_found", "the run has no such pause")
    if request.token != paused.token:
        return _refuse(progress, request, "pause_changed", "the token is not that of what waits now")
    possible = decisions_of(paused)
    if request.decision not in possible:
        return _refuse(progress, request, "invalid_decision", f"this pause takes: {', '.join(possible)}")
    if request.decision == "edit":
        return _edited(run, handling, paused, request)
    if request.decision == "answer" and (wrong := wrong_answer(paused, request.input)):
        return _refuse(progress, request, "invalid_input", wrong)
    resumed = resumed_by(run, paused, request, progress.now)
    return Append([resumed] if held is not None else closed(run, paused, resumed))


def decisions_of(paused: Paused) -> list[PauseDecision]:
    """Return the decisions that a pause takes."""
    if asks_consent(paused):
        return ["approve", "reject", "edit"]
    if paused.reason == "input":
        return ["answer", "reject"]
    return ["approve", "reject", "answer"] if paused.input_schema is not None else ["approve", "reject"]


def wrong_answer(paused: Paused, given: Any) -> str:
    """Return what is wrong with the input of an answer; empty where nothing is."""
    if (size := wire_size(given)) > MAX_INLINE_BYTES:
        return f"the input has {size:,} bytes, and at most {MAX_INLINE_BYTES:,} are taken"
    return _misfit(given, paused.input_schema or {})


def _misfit(value: Any, schema: dict[str, Any]) -> str:
    try:
        return "; ".join(complaints(value, schema))
    except ValueError as error:
        return f"it cannot be checked: {error}"


def _edited(run: Run, handling: Handling, paused: Paused, request: ResumeRequested) -> Command:
    """Return the next command for edited arguments: they are approved, or wait for a further approval."""
    progress, call = handling.progress, run.open.get(paused.call_id or "")
    if progress.specs is None:
        return commands.LoadSpecs()
    spec = progress.specs.get(paused.tool or "")
    if request.args is None or call is None or spec is None:
        return _refuse(progress, request, "invalid_input", "an edit needs `args`, and a tool whose arguments are known")
    wrong = _misfit(request.args, spec.input_schema)
    if wire_size(request.args) > MAX_ARGUMENT_BYTES:
        wrong = f"the arguments are larger than {MAX_ARGUMENT_BYTES:,} bytes"
    if wrong:
        return _refuse(progress, request, "invalid_input", wrong)
    call = call.model_copy(update={"args": request.args})
    try:
        digest = starting.digest_of(run, call, paused.revision)
    except ValueError:
        return _refuse(progress, request, "invalid_input", "the arguments are no JSON")
    rules = run.started.approval_rules if run.started is not None else []
    if any(rule.name == paused.rule and rule.reapprove_edits for rule in rules):
        changes = request.model_dump(include=_OF_REQUEST) | {"arguments": request.args, "revision": paused.revision + 1}
        return Append([starting.with_token(run, paused.model_copy(update=changes), call)])
    resumed = resumed_by(run, paused, request, progress.now)
    return Append(closed(run, paused, resumed.model_copy(update={"arguments": request.args, "digest": digest})))


def resumed_by(run: Run, paused: Paused, request: ResumeRequested, now: int) -> Resumed:
    """Return the fact of a person's decision, at `now`, Unix ms."""
    return Resumed(
        **request.model_dump(include={*_OF_REQUEST, "decision", "user_id", "note", "images", "images_remove"}),
        pause_id=paused.pause_id,
        decided_at=now,
        arguments=paused.arguments if paused.revision > 1 and request.decision == "approve" else None,
        input=request.input if request.decision == "answer" else None,
        digest=paused.digest if request.decision == "approve" else "",
        deadline_at=deadline_after(run, now),
    )


def deadline_after(run: Run, now: int) -> int | None:
    """Return the deadline of a run that does not wait any more, Unix ms: it stood still while the run only waited."""
    if run.deadline_at is None or run.waits_since is None:
        return run.deadline_at
    return run.deadline_at + max(0, now - run.waits_since)


def closed(run: Run, paused: Paused, resumed: Resumed) -> list[Event]:
    """Return the facts of a decision.

    A rejected call ends here, and so does a run whose own question was rejected. Images of a decision, and the reply to
    a question of the model, are an input.
    """
    end = end_after_rejection(run, paused, resumed.note) if resumed.decision == "reject" else None
    if end is not None:
        return [resumed, end]
    facts: list[Event] = [resumed]
    if is_refused(paused, resumed):
        facts.append(_not_approved(paused, resumed))
    reply = str(resumed.input) if paused.call_id is None and resumed.decision == "answer" else ""
    if resumed.images or reply:
        facts.append(InputAdded(id=resumed.id or "", text=reply, images=resumed.images, by=resumed.by))
    return run.while_paused(*facts)


def _not_approved(paused: Paused, resumed: Resumed) -> Observed:
    tool = SHOWN_NAMES.get(paused.tool or "", paused.tool)
    if resumed.by == BY_TIMER:
        reason = f"{tool} needs a person's approval. Nobody decided in time, so it did not run."
        fault = Fault(code="approval_expired", reason=reason)
    else:
        note = f" They say: {resumed.note}" if resumed.note else ""
        reason = f"A person rejected this call of {tool}, so it did not run. Do not repeat it unchanged.{note}"
        fault = Fault(code="rejected", reason=reason)
    return Observed(call_id=paused.call_id or "", tool=paused.tool or "", status="failed", failure=fault)


def expire(run: Run, now: int) -> Append | None:
    """Return the record that applies the defaults of all pauses that have expired; None if none has."""
    facts: list[Event] = []
    for paused in run.pauses.values():
        if paused.until > now:
            continue
        resumed = Resumed(
            pause_id=paused.pause_id,
            decision=paused.default,
            by=BY_TIMER,
            decided_at=now,
            input=paused.default_answer if paused.default == "answer" else None,
            note="" if paused.default == "answer" else "nobody decided in time",
            deadline_at=deadline_after(run, now),
        )
        facts += [fact for fact in closed(run, paused, resumed) if fact is not run.paused]
        if facts[-1].type in TERMINAL:
            return Append(facts)
    return Append(run.while_paused(*facts)) if facts else None


def next_expiry(run: Run) -> int | None:
    """Return when the next pause expires, a wait for a budget included, Unix ms; None: nothing waits."""
    return min((paused.until for paused in (*run.pauses.values(), *([run.paused] if run.paused else []))), default=None)


def after_decision(run: Run, progress: Progress) -> Command:
    """Return what follows a decision or an expiry: the message to the session, the deadline, the wake-up."""
    for control in run.pause_decisions.results:
        if (name := f"results-{control.id[-16:]}") not in progress.notified:
            return commands.NotifySession(name, control)
    return _approved_for_session(run, progress) or wake(run, progress)


def wake(run: Run, progress: Progress) -> Command:
    """Return what wakes a run whose deadline may have moved: the timer of the deadline is set first."""
    if run.deadline_at is not None and ("deadline", run.deadline_at) not in progress.timers:
        return commands.SetTimer("deadline", run.deadline_at)
    return Ack() if progress.woken else commands.Wake()


def _approved_for_session(run: Run, progress: Progress) -> commands.NotifySession | None:
    """Return the next message about a rule that asks once per session and was approved in this run."""
    if run.started is None or run.session_id is None:
        return None
    once = {rule.name for rule in run.started.approval_rules if rule.ask == "once_per_session"}
    for rule, tool in sorted(run.pause_decisions.approved_rules):
        name = f"approved-{hashlib.sha256(f'{rule} {tool}'.encode()).hexdigest()[:16]}"
        if rule in once and name not in progress.notified:
            request = run.started.request
            approved = ApprovedForSession(rule=rule, tool=tool, agent=request.agent, user_id=request.user_id)
            return commands.NotifySession(name, SessionApproved(approved=approved))
    return None


def before_ack(run: Run, progress: Progress) -> Command | None:
    """Return what an open run still needs before the acknowledgement: a timer, or a message to its session."""
    if run.started is None or run.terminal is not None:
        return None
    expiry = next_expiry(run)
    if run.pauses and expiry is not None and ("pause", expiry) not in progress.timers:
        return commands.SetTimer("pause", expiry)
    name = f"waits-{run.waits_seq}"
    if run.session_id is None or name in progress.notified:
        return None
    message = waits_message(run)
    return commands.NotifySession(name, message) if message is not None else None


def waits_message(run: Run) -> SessionRunWaits | None:
    """Return the message by which a run tells its session what it waits for; None if it never had a pause."""
    if run.started is None or not run.waits_seq:
        return None
    shown = {"payload": None, "input_schema": None, "arguments": None, "default_answer": None}
    open_now = [pause_view(run.started.run_id, paused.model_copy(update=shown)) for paused in run.pauses.values()]
    is_waiting = run.waits_since is not None or run.waits_for_tasks
    return SessionRunWaits(waits=RunWaits(run=run.started.run_id, seq=run.waits_seq, waits=is_waiting, pauses=open_now))


def open_after(run: Run, events: list[Event]) -> int:
    """Count the pauses that are open after these events are recorded."""
    found = {*run.pauses, *run.paused_by_tasks}
    for event in events:
        match event:
            case TasksPaused(call_id=call):
                found = found | {call} if event.pauses else found - {call}
            case Observed(call_id=call):
                found.discard(call)
            case Paused(pause_id=str(name)):
                found.add(name)
            case Resumed(pause_id=str(name)):
                found.discard(name)
            case _ if event.type in TERMINAL:
                found.clear()
    return len(found)


def is_held(run: Run) -> bool:
    """Whether the run may not ask the model: a pause without a call is open, or another run has its turn."""
    return run.yields or any(paused.call_id is None for paused in run.pauses.values())
