"""What people add to a run while it goes on: each input is taken once, in order, or refused with a code. Pure.

Rule 1: inputs arrive at the control consumer, which calls no model and no tool. They are recorded, answered, and read
with the next request to the model. A redirect ends the request in flight and wakes the run.
Rule 2: where the run does nothing but wait for people, a text answers its oldest `input` pause that takes a text. Else
it rejects the calls that wait for an approval or a confirmation, whether a rule or the tool itself asks for it, with
the text as note. Any other input waits to be read, and so does a text that is too long for a note, or comes with images
or as a new question.
Rule 3: the rules of the agent (`input_rules`) are applied before anything else happens with a text.
"""

from typing import Any

from contracts.runs.events import InputAdded, Paused, Resumed, RunStarted
from contracts.runs.inbox import InputRequested, ResumeRequested
from contracts.runs.pauses import DEFAULT_PAUSE_S, MAX_UNREAD_INPUTS, PauseDecision, text_pause_id
from contracts.sessions.records import SessionInputTaken
from services.planner.run import commands
from services.planner.run.commands import Append, Command, Handling, Progress
from services.planner.run.people import pauses
from services.planner.run.people.input_rules import InputRule
from services.planner.run.state.people import MAX_SHOWN_CHARACTERS, with_answer_token
from services.planner.run.state.run import Event, Run
from services.shared.runs.causes import CAUSES

MAX_NOTES_CHARACTERS = 8_000
"""Characters of all notes together where a text rejects calls. Each note is recorded twice, beside the text."""
RUN_ID_TAIL = 20
"""Digits of a run id in the name of a message, which has 64 characters at most."""


def on_input(run: Run, handling: Handling, message: InputRequested) -> Command | None:
    """Return the next command for an input; None: everything about it is done."""
    progress = handling.progress
    if message.id in run.inputs.ids or message.id in run.pause_decisions.requests:
        return _after(run, progress, message)
    if run.terminal is not None or run.stopping is not None:
        return _refuse(run, progress, message, "run_ended", "the run has ended")
    if run.started is not None and not CAUSES[run.started.request.cause].asks_model:
        reason = "the run asks no model, so nothing would be read; decide about its pauses, or cancel it"
        return _refuse(run, progress, message, "input_refused", reason)
    if expired := pauses.expire(run, progress.now):
        return expired
    if len(run.inputs.unread) >= MAX_UNREAD_INPUTS:  # If it is the text of another run, that run waits for its turn.
        reason = f"{MAX_UNREAD_INPUTS} inputs wait for the next decision already"
        return _refuse(run, progress, message, "too_many_inputs", reason)
    if run.started is None:  # The texts are checked when the run is opened.
        return Append([_added(message)])
    if progress.checked is None:
        return commands.CheckInput()
    if progress.checked.refusal is not None:
        return _refuse(run, progress, message, progress.checked.refusal.code, progress.checked.refusal.reason)
    return Append(_facts(run, run.started, progress, message))


def _after(run: Run, progress: Progress, message: InputRequested) -> Command | None:
    """Return what follows an input that is recorded: the answer, the message to the session, the wake-up."""
    if not progress.answered:
        return commands.Answer(message.id, is_repeated=message.id not in progress.decided)
    if (notice := _notice(run, progress, message, taken=True)) is not None or run.terminal is not None:
        return notice
    if message.id in run.pause_decisions.requests:
        return pauses.after_decision(run, progress)
    return commands.Wake() if message.redirect and not progress.woken else None


def _refuse(run: Run, progress: Progress, message: InputRequested, code: str, reason: str) -> Command | None:
    if not progress.answered:
        return commands.Answer(message.id, code, reason)
    return _notice(run, progress, message, taken=False)


def _notice(run: Run, progress: Progress, message: InputRequested, *, taken: bool) -> commands.NotifySession | None:
    """Return the message to the session about the text of another run; None: there is none, or it was sent."""
    into = message.into or (run.request.run_id if run.request is not None else None)
    if message.run is None or into is None:
        return None
    name = f"{'taken' if taken else 'missed'}-{message.run[-RUN_ID_TAIL:]}"
    notice = SessionInputTaken(run=message.run, into=into, taken=taken)
    return None if name in progress.notified else commands.NotifySession(name, notice)


def _added(message: InputRequested) -> InputAdded:
    return InputAdded.model_validate(message.model_dump(include={"id", "text", "images", "redirect", "run", "by"}))


def _facts(run: Run, started: RunStarted, progress: Progress, message: InputRequested) -> list[Event]:
    rule = progress.checked.rule if progress.checked is not None else None
    decided = _decided(run, message, progress.now) if run.waits_since is not None and rule is None else []
    is_cut = any(isinstance(fact, Resumed) and fact.note not in {"", message.text} for fact in decided)
    if decided and not (message.redirect or message.images or is_cut):
        return decided
    facts = [*decided, _added(message)]
    if rule is not None:
        facts.append(pause_of_rule(started, message.id, rule, message.text, progress.now))
    return run.while_paused(*facts)


def _decided(run: Run, message: InputRequested, now: int) -> list[Event]:
    """Return the decisions that an input makes about the pauses of a run that only waits."""
    if not (message.redirect or message.images):
        for paused in run.pauses.values():
            if paused.reason == "input" and (given := _as_answer(paused, message.text)) is not None:
                return pauses.closed(run, paused, _resumed(run, paused, message, "answer", given, now))
    return [
        fact
        for paused in _held(run)
        for fact in pauses.closed(run, paused, _resumed(run, paused, message, "reject", None, now))
        if fact is not run.paused
    ]


def _held(run: Run) -> list[Paused]:
    """Return the pauses in which a call waits to be allowed."""
    return [paused for paused in run.pauses.values() if paused.call_id is not None and paused.reason != "input"]


def _resumed(
    run: Run, paused: Paused, message: InputRequested, decision: PauseDecision, given: Any, now: int
) -> Resumed:
    limit = MAX_NOTES_CHARACTERS // max(2, len(_held(run)))
    note = message.text if len(message.text) <= limit else f"{message.text[:limit]}…"
    request = ResumeRequested(
        id=message.id,
        pause_id=paused.pause_id or "",
        token=paused.token,
        decision=decision,
        input=given,
        note=note if decision == "reject" else "",
        by=message.by,
        user_id=message.user_id,
    )
    return pauses.resumed_by(run, paused, request, now)


def _as_answer(paused: Paused, text: str) -> Any | None:
    """Return a text as the answer that a pause takes: itself, or as the one required field; None: it takes no text."""
    if not pauses.wrong_answer(paused, text):
        return text
    required = (paused.input_schema or {}).get("required")
    if not isinstance(required, list) or len(required) != 1:
        return None
    given = {str(required[0]): text}
    return None if pauses.wrong_answer(paused, given) else given


def pause_of_rule(started: RunStarted, place: str, rule: InputRule, text: str, now: int) -> Paused:
    """Return the pause of a text that a person has to admit. `place`: the id of the input, or `question`."""
    pause = Paused(
        reason="approval",
        source="policy",
        until=now + int(DEFAULT_PAUSE_S * 1000),
        pause_id=text_pause_id(started.run_id, place),
        title=rule.title or f"A text matches the rule {rule.name}",
        payload={"text": text[:MAX_SHOWN_CHARACTERS]},
        rule=rule.name,
    )
    return with_answer_token(started, pause)
