"""What a reply of the model leads to: the events of its decision. Pure.

Whatever asks the model again is checked against the budgets first: a repair costs as much as any other call.
"""

from dataclasses import replace
from typing import Any

from contracts.actions import FINAL_RESPONSE
from contracts.events import Asked, AskedCause, Compacted, ModelFailed, Observed, PlannedCall, Repaired, Step, StepStatus
from services.planner.run import budgets, terminal
from services.planner.run.approvals import refusals
from services.planner.run.commands import Rules, Told
from services.planner.run.decision import Calls, Decision, Failed, Final, Invalid
from services.planner.run.state import Event, Run, spent, take_in
from services.planner.run.triage_critique import Critique

_SHORT = 4000
_OVERFLOW_LINES = (60, 400)
"""Characters to which lines are cut when the model says that all is too long: the fewer, the more there are that are short already."""
_NOT_REVISED = "a better answer was asked for, and did not come"
_FIRST_PAUSE_S = 0.5
_TRIES_PER_MODEL = 2
"""Requests to one model that break off, before the next one is asked."""


def comes_to(run: Run, decision: Decision, now: int, rules: Rules) -> Decision:
    """Say what a reply comes to in this run.

    One that may not be repaired any more comes to what can be salvaged of it; a failed call for the text of an answer, to the answer
    without that text; a revision that does not come, to the answer that was to be revised.

    This is settled once, at `now`: what is shown and what is recorded follow from the same resolution, whatever the clock says later.
    """
    if decision.resolved_at is not None:
        return decision
    return replace(_resolved(run, decision, now, rules), resolved_at=now)


def _resolved(run: Run, decision: Decision, now: int, rules: Rules) -> Decision:
    if isinstance(decision, Invalid) and not _may_repair(run, decision, now, rules):
        return decision.salvage or _unrevised(run, decision) or decision
    if isinstance(decision, Failed) and not _may_fail(run, decision, rules):
        if run.final_args is not None:
            return Final(args=run.final_args, has_text=False, usage=decision.usage)
        return _unrevised(run, decision) or decision
    return decision


def _unrevised(run: Run, decision: Decision) -> Final | None:
    """The answer that was to be revised: one that could be better is better than none."""
    if not run.judged:
        return None
    return Final(args=run.judged, judged=True, usage=decision.usage, warnings=(*decision.warnings, _NOT_REVISED))


def text_of(run: Run, decision: Decision) -> str:
    """The whole text of the answer that the run ends with by this decision; "" when it does not end with one."""
    if isinstance(decision, Final) and (decision.has_text or run.final_args is not None):
        return terminal.answered(run, decision.args).raw_answer
    return ""


def decide(run: Run, told: Told, asked: Asked, decision: Decision, rules: Rules) -> list[Event]:
    """Return the events of a decision; one that was shown before was resolved then."""
    decision = comes_to(run, decision, told.now, rules)
    match decision:
        case Calls():
            return _step_of_calls(run, told, asked, decision)
        case Final() if not decision.has_text and run.final_args is None:
            return _ask_for_the_text(run, told, asked, decision)
        case Final() if told.critique is not None and _is_wanting(run, told.critique):
            return _revise(run, told, asked, decision, told.critique)
        case Final():
            return _step_of_answer(run, told, asked, decision)
        case Invalid():
            return _repair(run, told, asked, decision, rules)
        case Failed():
            return _fail(run, told, asked, decision, rules)
    raise AssertionError(f"no rule for {type(decision).__name__}")


def next_asked(run: Run, told: Told, turn: int, attempt: int, cause: AskedCause) -> Asked:
    """The fact that the model is being asked by this handling."""
    failures = run.failures + (cause == "provider") if turn == run.turn else 0
    names = models_of(run)
    model = "" if awaits_triage(run, turn) else names[min(failures // _TRIES_PER_MODEL, len(names) - 1)]
    return Asked(turn=turn, attempt=attempt, by=told.owner, holder=told.holder, model=model or None, cause=cause)


def awaits_triage(run: Run, turn: int) -> bool:
    """Whether a cheap call will choose among several models before one of them is asked."""
    several = run.started is not None and len(run.started.models) > 1
    return several and (run.effort == "auto" or (run.effort is None and turn == 1))


def models_of(run: Run) -> list[str]:
    """The run's model and its fallbacks, in the order in which they are asked."""
    return list(dict.fromkeys([run.model, *(run.started.fallbacks if run.started else ())]))


def pause_s(run: Run, failures: int) -> float:
    """Seconds before the request that follows so many in a turn that broke off; none where the next model is asked."""
    last = len(models_of(run)) - 1
    before, now = (min(count // _TRIES_PER_MODEL, last) for count in (failures - 1, failures))
    return _FIRST_PAUSE_S * 2.0 ** (failures - 1) if before == now else 0.0


def after(run: Run, *, decision: Decision | None = None, observed: Observed | None = None) -> Run:
    """What the ending of the run is made from, with the decision or outcome that is written in the very same record."""
    later = replace(run, collected=run.collected.copy(), warnings=list(run.warnings))
    if decision is not None:
        later.usage = spent(run.usage, decision.usage)
        later.warnings = [*run.warnings, *decision.warnings]
    if observed is not None:
        take_in(later, observed)
    return later


def _ask_again(
    run: Run, told: Told, asked: Asked, decision: Decision, cause: AskedCause, *facts: Event, args: dict[str, Any] | None = None
) -> list[Event]:
    """Ask once more for this turn's decision, where a budget allows it. `args`: of a final response that is not finished yet."""
    later = after(run, decision=decision)
    budget = budgets.spent(later, told.now)
    if budget is None:
        return [*facts, next_asked(run, told, asked.turn, asked.attempt + 1, cause)]
    end = budgets.out_of(later, budget, told.now, args)
    return [*facts, end] if end.type == "paused" else [end]


def _step(asked: Asked, decision: Decision, node: str, status: StepStatus, **fields: object) -> Step:
    return Step.model_validate(
        {
            "step": asked.turn,
            "node": node,
            "status": status,
            "thought": decision.thought,
            "reasoning": decision.reasoning,
            "attempt": asked.attempt,
            "by": asked.by,
            "usage": decision.usage,
            "warnings": list(decision.warnings),
            **fields,
        }
    )


def _step_of_calls(run: Run, told: Told, asked: Asked, decision: Calls) -> list[Event]:
    # A plan's join is reserved with its branches, so that what was begun can be finished.
    budget = budgets.spent_calls(run, len(decision.calls) + (decision.join is not None))
    if budget is not None:
        skipped = _step(asked, decision, decision.node, "skipped", latency_ms=_latency_ms(run, told))
        return [skipped, budgets.out_of(after(run, decision=decision), budget, told.now)]
    calls = [PlannedCall(call_id=f"{asked.turn}-{n}", tool=tool, args=args) for n, (tool, args) in enumerate(decision.calls, 1)]
    started = _step(asked, decision, decision.node, "started", calls=calls, join=decision.join, note=decision.note)
    return [started, *refusals(run, calls)]


def _is_wanting(run: Run, critique: Critique) -> bool:
    reflection = run.started.reflection if run.started else None
    if reflection is None or critique.score is None:
        return False
    return critique.score < reflection.threshold and run.revisions < reflection.max_revisions


def _revise(run: Run, told: Told, asked: Asked, decision: Final, critique: Critique) -> list[Event]:
    usage = spent(decision.usage, critique.usage)
    if budgets.spent(after(run, decision=replace(decision, usage=usage)), told.now) is not None:
        return _step_of_answer(run, told, asked, decision)  # An answer that could be better is better than none.
    reason = f"the answer was judged {critique.score:g} of 1: {critique.feedback}"[:_SHORT]
    reply = str(decision.args.get("answer", ""))[:_SHORT]
    # Kept with its score, for the case that no better one comes.
    args = {**decision.args, "confidence": critique.score, "extra": terminal.answered(run, decision.args, critique.score).extra}
    repaired = Repaired(turn=asked.turn, attempt=asked.attempt, reason=reason, kind="revision", reply=reply, args=args, usage=usage)
    return [repaired, next_asked(run, told, asked.turn, asked.attempt + 1, "repair")]


def _step_of_answer(run: Run, told: Told, asked: Asked, decision: Final) -> list[Event]:
    critique = told.critique
    score = critique.score if critique is not None else None
    if critique is not None:
        decision = replace(decision, usage=spent(decision.usage, critique.usage))
    started = _step(asked, decision, FINAL_RESPONSE, "started")
    done = terminal.answered(after(run, decision=decision), decision.args, score)
    status: StepStatus = "failed" if done.reason == "no_path" else "succeeded"
    ended = Step(step=asked.turn, node=FINAL_RESPONSE, status=status, latency_ms=_latency_ms(run, told), attempt=asked.attempt)
    return [started, ended, done]


def _latency_ms(run: Run, told: Told) -> int:
    """Since the model was first asked in this turn, by whichever handling."""
    return max(0, told.now - run.turn_at)


def _may_repair(run: Run, decision: Invalid, now: int, rules: Rules) -> bool:
    return run.repairs < rules.max_repairs and budgets.spent(after(run, decision=decision), now) is None


def _repair(run: Run, told: Told, asked: Asked, decision: Invalid, rules: Rules) -> list[Event]:
    if run.repairs < rules.max_repairs:
        reply = decision.reply[:_SHORT]
        repaired = Repaired(turn=asked.turn, attempt=asked.attempt, reason=decision.complaint, reply=reply, usage=decision.usage)
        return _ask_again(run, told, asked, decision, "repair", repaired)
    invalid = _step(asked, decision, decision.node, "invalid", latency_ms=_latency_ms(run, told))
    return [invalid, terminal.no_path(after(run, decision=decision), decision.complaint)]


def _may_fail(run: Run, decision: Failed, rules: Rules) -> bool:
    # Each of the fallbacks is asked once at least.
    most = max(rules.max_provider_failures, _TRIES_PER_MODEL * (len(models_of(run)) - 1))
    return decision.again and run.failures < most


def _fail(run: Run, told: Told, asked: Asked, decision: Failed, rules: Rules) -> list[Event]:
    if decision.fault.code == "context_too_long" and run.compactions == 0:
        shortest, longest = _OVERFLOW_LINES
        line = max(shortest, min(longest, run.characters // (4 * max(1, len(run.history)))))
        compacted = Compacted(turn=asked.turn, cause="overflow", line_characters=line)
        return _ask_again(run, told, asked, decision, "compacted", compacted)
    if not _may_fail(run, decision, rules):
        return [terminal.failed(after(run, decision=decision), decision.fault)]
    model, later = asked.model or run.model, next_asked(run, told, asked.turn, asked.attempt + 1, "provider").model or ""
    failed = ModelFailed(
        turn=asked.turn,
        attempt=asked.attempt,
        model=model,
        fault=decision.fault,
        then="retry" if later == model else "fallback",
        next_model=later,
        wait_s=pause_s(run, run.failures + 1),
        usage=decision.usage,
    )
    return _ask_again(run, told, asked, decision, "provider", failed)


def _ask_for_the_text(run: Run, told: Told, asked: Asked, decision: Final) -> list[Event]:
    reason = "the final response held no answer; its text is asked for alone"
    repaired = Repaired(turn=asked.turn, attempt=asked.attempt, reason=reason, kind="answer", args=decision.args, usage=decision.usage)
    return _ask_again(run, told, asked, decision, "repair", repaired, args=decision.args)
