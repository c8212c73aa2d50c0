"""What follows when a tool call has its outcome, and when a step has ended: the next call, the join, the next question or the end. Pure."""

from collections.abc import Mapping

from contracts.events import Called, Compacted, Observed, PlannedCall, Step, StepStatus
from services.planner.run import budgets
from services.planner.run.approvals import refusals
from services.planner.run.commands import Rules, Told
from services.planner.run.decide import after, next_asked
from services.planner.run.joins import JoinAbsent, JoinCall, branch_of, failed_join, resolve_join
from services.planner.run.state import Event, Run

_SHORTEST_LINE = 120


def settle(run: Run, told: Told, observed: Observed, rules: Rules) -> list[Event]:
    """Record an outcome, hand its place to a waiting call, and go on when it was the last. A paused run goes no further."""
    if run.paused is not None:
        return [observed, run.paused]
    step = run.step
    waiting = waiting_calls(run)
    if waiting and step is not None:
        return [observed, _too_late(run, told, observed) or Called(step=step.step, by=told.owner, calls=waiting[:1])]
    if len(run.open) > 1 or step is None:
        return [observed]
    return [observed, *conclude(run, told, step, rules, observed)]


def _too_late(run: Run, told: Told, observed: Observed | None) -> Event | None:
    """What happens instead of a further call once the deadline has passed: its timer may come later than the outcome."""
    if run.deadline_at is None or told.now < run.deadline_at:
        return None
    return budgets.out_of(after(run, observed=observed), budgets.deadline(run), told.now)


def waiting_calls(run: Run) -> list[PlannedCall]:
    """The calls of the step that wait for a free place."""
    return [call for call in run.open.values() if call.call_id not in run.owner]


def conclude(run: Run, told: Told, step: Step, rules: Rules, last: Observed | None = None) -> list[Event]:
    """All calls of a step are settled, `last` with the record that is being made: call the join, or end the step and go on."""
    outcomes = dict(run.observed) if last is None else {**run.observed, last.call_id: last}
    join = _join(run, told, step, outcomes)
    if isinstance(join, PlannedCall):
        late = _too_late(run, told, last)
        return [late] if late else [Called(step=step.step, by=told.owner, calls=[join], join=True), *refusals(run, [join])]
    status: StepStatus = "succeeded" if all(o.status == "succeeded" for o in outcomes.values()) else "failed"
    latency_ms = max(0, told.now - run.step_at)
    ended = Step(step=step.step, node=step.node, status=status, latency_ms=latency_ms, note=join)
    return [ended, *go_on(run, told, rules, last)]


def _join(run: Run, told: Told, step: Step, outcomes: Mapping[str, Observed]) -> PlannedCall | str | None:
    """The call of the plan's join, now that all branches are settled; or the line that says why there is none; or None."""
    join_id = f"{step.step}-join"
    if run.joined:
        joined = outcomes.get(join_id)
        return None if joined is None or joined.status == "succeeded" else failed_join(joined.failure).line
    if step.join is None:
        return step.note
    branches = [branch_of(call, outcomes[call.call_id]) for call in step.calls]
    outcome = resolve_join({"join": step.join}, branches, told.specs)
    if isinstance(outcome, JoinCall):
        return PlannedCall(call_id=join_id, tool=outcome.node, args=outcome.args)
    return None if isinstance(outcome, JoinAbsent) else outcome.line


def go_on(run: Run, told: Told, rules: Rules, observed: Observed | None = None) -> list[Event]:
    """Ask for the next decision, or stop the run when it has spent what it may."""
    budget = budgets.spent_steps(run) or budgets.spent(run, told.now)
    if budget is not None:
        return [budgets.out_of(after(run, observed=observed), budget, told.now)]
    asked = next_asked(run, told, run.turn + 1, 1, "turn")
    # What could not be brought below the limit grows by a quarter before it is tried again: not at every step.
    if run.characters <= max(rules.max_characters, run.squeezed * 5 // 4):
        return [asked]
    # Lines get shorter as steps get more, so that the whole comes well below the limit and stays there for a while.
    line = max(_SHORTEST_LINE, rules.max_characters // (4 * max(1, len(run.history))))
    return [Compacted(turn=run.turn + 1, cause="threshold", line_characters=line), asked]
