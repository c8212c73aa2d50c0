"""What follows an outcome or the end of a step: the next call, the join, the next model call or the end. Pure.

Before a request to the model come the budgets, a compaction of the conversation, and the `asked` record. The budgets
count what the record that is being made will have changed: `run_after` gives the run as it will be then.

Two handlings of one message may work at a time: one process was stopped, or its heartbeats came too late. Only direct
calls have outcomes that one handling alone knows, so only they are taken over (`take_over`).
Rule 1: the later handling sends the direct calls of the earlier one through CALLS, and acknowledges the message. The
outcomes come through INBOX, and the handling that takes them goes on with the run.
Rule 2: it announces these calls again before it acknowledges, as calls that are not direct. From then on the earlier
handling drops their outcomes. Otherwise it would go on for a message that is not delivered again, and the run would
stand still if its process died.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from contracts.runs.events import Asked, AskedCause, Called, Compacted, Observed, PlannedCall, Step, StepStatus
from contracts.runs.inbox import CallFinished
from contracts.wire.base import MAX_OUTCOME_BYTES
from services.planner.run.calls import starting
from services.planner.run.calls.joins import JoinCall, branch_of, failed_join, resolve_join
from services.planner.run.commands import Append, Handling, Progress, Rules
from services.planner.run.ending import budgets
from services.planner.run.people import pauses
from services.planner.run.state.run import Event, Run, take_in, waiting_calls
from services.planner.run.turn.decision import Decision
from services.shared.budgets.totals import spent
from services.shared.tools.builtin import OF_PLANNER

MIN_LINE_CHARACTERS = 120


def go_on(run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()) -> list[Event]:
    """End or pause a run whose budget is spent, else do what its strategy says. `observed`: outcomes in this record."""
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


def settle(run: Run, handling: Handling, observed: Sequence[Observed], rules: Rules) -> list[Event]:
    """Record outcomes, and start waiting calls or conclude the step. A paused run only records them."""
    if run.paused is not None:
        return [*observed, run.paused]
    step = run.step
    waiting = waiting_calls(run)
    if waiting and step is not None:
        called = Called(step=step.step, by=handling.incoming.owner, calls=waiting[: len(observed)])
        return [*observed, _too_late(run, handling, observed) or called]
    if len(run.open) > len(observed) or step is None:
        return [*observed]
    return [*observed, *conclude(run, handling, step, rules, observed)]


def first_that_fit(observed: Sequence[Observed]) -> Sequence[Observed]:
    """Return the first of several outcomes, one at least, that are no longer together than one may be."""
    if len(observed) == 1:
        return observed
    sizes = accumulate(len(each.model_dump_json().encode()) for each in observed)
    return observed[: max(1, sum(size <= MAX_OUTCOME_BYTES for size in sizes))]


def _too_late(run: Run, handling: Handling, observed: Sequence[Observed]) -> Event | None:
    """Return the event that ends or pauses a run past its deadline, or None. The timer may fire after the outcome."""
    if run.deadline_at is None or handling.progress.now < run.deadline_at:
        return None
    return budgets.out_of(run_after(run, observed=observed), budgets.deadline(run), handling.progress.now)


def conclude(run: Run, handling: Handling, step: Step, rules: Rules, last: Sequence[Observed] = ()) -> list[Event]:
    """Call the join, or end the step and go on, once its calls are finished. `last`: outcomes in this record."""
    if (own := rules.strategy.on_outcome(run, handling, rules, last)) is not None:
        return own
    outcomes = run.observed | {each.call_id: each for each in last}
    join = _join(run, handling, step, outcomes)
    if isinstance(join, PlannedCall):
        if late := _too_late(run, handling, last):
            return [late]
        called = Called(step=step.step, by=handling.incoming.owner, calls=[join], join=True)
        return [called, *starting.held(run, handling.progress.now, step.step, [join])]
    status: StepStatus = "succeeded" if all(o.status == "succeeded" for o in outcomes.values()) else "failed"
    latency_ms = max(0, handling.progress.now - run.step_at)
    lines = [line for line in (starting.line_about(run, outcomes, {f"{step.step}-join"}), join) if line]
    note = "\n".join(lines) or None
    ended = Step(step=step.step, node=step.node, status=status, latency_ms=latency_ms, note=note)
    return [ended] if pauses.is_held(run) else [ended, *go_on(run, handling, rules, last)]


def _join(run: Run, handling: Handling, step: Step, outcomes: Mapping[str, Observed]) -> PlannedCall | str | None:
    """Return the call of the plan's join, or the line that says why it does not run, or None where there is none."""
    join_id = f"{step.step}-join"
    if run.joined:
        joined = outcomes.get(join_id)
        return None if joined is None or joined.status == "succeeded" else failed_join(joined.failure).line
    if step.join is None:
        return step.note
    branches = [branch_of(starting.as_called(run, call), outcomes[call.call_id]) for call in step.calls]
    outcome = resolve_join({"join": step.join}, branches, handling.progress.specs or {})
    if isinstance(outcome, JoinCall):
        return PlannedCall(call_id=join_id, tool=outcome.node, args=outcome.args)
    return None if outcome is None else outcome.line


def own_outcomes(run: Run, handling: Handling) -> list[CallFinished]:
    """Return the outcomes of the open calls that this handling has made, and no other one has taken over.

    A call that goes to no tool runner is never direct: its outcome is here if the planner has it.
    """
    return [
        outcome
        for outcome in handling.progress.outcomes
        if (call := run.open.get(outcome.call_id)) and (call.direct is not None or call.tool in OF_PLANNER)
    ]


def take_over(run: Run, handling: Handling) -> Append | None:
    """Return the record by which a handling takes over the direct calls that it has sent through CALLS, if any."""
    sent = handling.progress.dispatched - handling.progress.announced
    calls = [
        call.model_copy(update={"direct": None})
        for call in run.open.values()
        if call.direct is not None
        and call.call_id in sent
        and run.owner.get(call.call_id) == handling.incoming.owner  # Its tool may have paused it meanwhile.
    ]
    if not calls or run.step is None:
        return None
    return Append(run.while_paused(Called(step=run.step.step, by=handling.incoming.owner, calls=calls)))
