"""What follows an answer that does not end its run: the model reads what people have added, or the user is asked. Pure.

Rule 1: no run ends with an answer while an input is unread, unless a budget forbids another request to the model.
Rule 2: with `followup: pause` an answer that requires a follow-up waits for the user's reply. If none comes, or the
user rejects the question, the run ends with that answer.
"""

from typing import Any

from contracts.runs.events import Done, Paused
from contracts.runs.pauses import DEFAULT_PAUSE_S, MAX_STATE_BYTES, pause_id
from services.planner.run.ending import budgets, terminal
from services.planner.run.people.input_rules import input_refused
from services.planner.run.state.people import MAX_SHOWN_CHARACTERS, with_answer_token
from services.planner.run.state.run import Event, Run
from services.shared.redaction.placeholders import wire_size

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
    assert run.started is not None  # noqa: S101, see after_answer
    lines = done.raw_answer.strip().splitlines()
    pause = Paused(
        reason="input",
        source="planner",
        until=now + int(DEFAULT_PAUSE_S * 1000),
        pause_id=pause_id(run.started.run_id, f"step-{run.turn}", 0),
        title=lines[0][:MAX_TITLE_CHARACTERS] if lines else "",
        payload={"answer": done.raw_answer[:MAX_SHOWN_CHARACTERS]},
        state=args if wire_size(args) <= MAX_STATE_BYTES else {},
        input_schema=REPLY_SCHEMA,
        step=run.turn,
    )
    return with_answer_token(run.started, pause)


def end_after_rejection(run: Run, paused: Paused, note: str) -> Event | None:
    """Return the end of a run whose own question, or whose user's text, was rejected; None for any other pause."""
    if paused.call_id is not None or paused.source not in {"planner", "policy"}:
        return None
    if paused.source == "planner":
        return terminal.answered(run, paused.state or {**terminal.given_answer(run), "requires_followup": True})
    return terminal.failed(run, input_refused(paused.rule or "", note))
