"""What follows the outcome of a tool call or the end of a step. Pure.

That is the next call, the join, the next model call or the end of the run.

Two handlings of one message may go on at a time: one process was stopped, or its heartbeats came too late. Only direct
calls have outcomes that one handling alone knows, so only they are taken over.
Rule 1: the later handling sends the direct calls of the earlier one through CALLS, and acknowledges the message. The
outcomes come through INBOX, and the handling that takes them goes on with the run.
Rule 2: it announces these calls again before it acknowledges, as calls that are not direct. From then on the earlier
handling drops their outcomes. Otherwise it would go on for a message that is not delivered again, and the run would
stand still if its process died.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from contracts.runs.events import Called, Observed, PlannedCall, Step, StepStatus
from contracts.runs.inbox import CallFinished
from contracts.wire.limits import MAX_OUTCOME_BYTES
from services.planner.run.calls import approvals
from services.planner.run.calls.joins import JoinAbsent, JoinCall, branch_of, failed_join, resolve_join
from services.planner.run.commands import Append, Handling, Rules
from services.planner.run.ending import budgets
from services.planner.run.people import pauses
from services.planner.run.state.run import Event, Run, waiting_calls
from services.planner.run.turn.asking import go_on, run_after
from services.shared.tools.builtin import OF_PLANNER


def settle(run: Run, handling: Handling, observed: Sequence[Observed], rules: Rules) -> list[Event]:
    """Record outcomes. Start waiting calls in their place; after the last outcome, conclude the step.

    A paused run only records the outcomes.
    """
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
    """Call the join, or end the step and go on, once all calls of a step are finished.

    `last`: the outcomes in the record that is being made.
    """
    if (own := rules.strategy.on_outcome(run, handling, rules, last)) is not None:
        return own
    outcomes = run.observed | {each.call_id: each for each in last}
    join = _join(run, handling, step, outcomes)
    if isinstance(join, PlannedCall):
        if late := _too_late(run, handling, last):
            return [late]
        called = Called(step=step.step, by=handling.incoming.owner, calls=[join], join=True)
        return [called, *approvals.held(run, handling.progress.now, step.step, [join])]
    status: StepStatus = "succeeded" if all(o.status == "succeeded" for o in outcomes.values()) else "failed"
    latency_ms = max(0, handling.progress.now - run.step_at)
    lines = [line for line in (approvals.line_about(run, outcomes, {f"{step.step}-join"}), join) if line]
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
    branches = [branch_of(approvals.as_called(run, call), outcomes[call.call_id]) for call in step.calls]
    outcome = resolve_join({"join": step.join}, branches, handling.progress.specs or {})
    if isinstance(outcome, JoinCall):
        return PlannedCall(call_id=join_id, tool=outcome.node, args=outcome.args)
    return None if isinstance(outcome, JoinAbsent) else outcome.line


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
