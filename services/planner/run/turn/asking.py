"""What precedes a request to the model: the budgets, a compaction of the conversation, and the `asked` record. Pure.

The budgets count what the record that is being made will have changed: `run_after` gives the run as it will be then.
"""

from collections.abc import Sequence
from dataclasses import replace

from contracts.runs.events import Asked, AskedCause, Compacted, Observed
from services.planner.run.commands import Handling, Progress, Rules
from services.planner.run.ending import budgets
from services.planner.run.state.run import Event, Run, take_in
from services.planner.run.turn.decision import Decision
from services.shared.budgets.totals import spent

MIN_LINE_CHARACTERS = 120


def go_on(run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()) -> list[Event]:
    """End or pause the run when a budget is exhausted; else do what the run's strategy says.

    `observed`: the outcomes in the record that is being made.
    """
    if (budget := budgets.spent_for_step(run, handling.progress.now)) is not None:
        return [budgets.out_of(run_after(run, observed=observed), budget, handling.progress.now)]
    return rules.strategy.on_step_ended(run, handling, rules, observed)


def ask_next(run: Run, handling: Handling, rules: Rules) -> list[Event]:
    """Ask the model for the next decision. A conversation that is too long is compacted first."""
    asked = next_asked(run, handling, run.turn + 1, 1, "turn")
    length, limit = rules.strategy.length(run), rules.max_characters
    # A history that stays above the limit must grow by a quarter before the next attempt: not at every step.
    if length.characters <= max(limit, length.compacted_characters * 5 // 4):
        return [asked]
    # The more messages, the shorter their lines, so that the history stays below the limit for some steps.
    line = max(MIN_LINE_CHARACTERS, limit // (4 * max(1, length.messages)))
    return [Compacted(turn=run.turn + 1, cause="threshold", line_characters=line), asked]


def next_asked(run: Run, handling: Handling, turn: int, attempt: int, cause: AskedCause) -> Asked:
    """Return the `asked` record of a model call that this handling makes."""
    model = "" if awaits_triage(run, turn) else run.calling if turn == run.turn else run.model
    return Asked(
        turn=turn,
        attempt=attempt,
        by=handling.incoming.owner,
        holder=handling.incoming.attempt_token,
        model=model or None,
        cause=cause,
        part=turn - 1 if run.strategy_state.has_parts else 0,
    )


def with_unfinished(run: Run, progress: Progress) -> Run:
    """Return the run with what its request has cost that never ended."""
    return replace(run, usage=spent(run.usage, progress.unfinished)) if progress.unfinished is not None else run


def awaits_triage(run: Run, turn: int) -> bool:
    """Whether a short model call must first choose one of several models."""
    several = run.started is not None and len(run.started.models) > 1
    return several and (run.effort == "auto" or (run.effort is None and turn == 1))


def run_after(run: Run, *, decision: Decision | None = None, observed: Sequence[Observed] = ()) -> Run:
    """Return the run as it will be after the decision or outcomes of the record that is being made.

    The payload of a terminal event in the same record is built from it.
    """
    later = replace(run, collected=run.collected.copy(), warnings=list(run.warnings))
    if decision is not None:
        later.usage = spent(run.usage, decision.usage)
        later.warnings = [*run.warnings, *decision.warnings]
        if decision.said is not None:
            later.strategy_state = run.strategy_state.after(decision.said, len(decision.message))
    for each in observed:
        take_in(later, each)
    return later
