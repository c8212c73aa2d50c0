"""Turns a model's decision, or a failed request to the model, into the events to record. Pure.

Every further model call is checked against the budgets first: a repair costs as much as any other call.

A failed request is followed by another one, by the next model, or by the end. This is the one retry policy.

Rule 1: rate limits, server errors, time-outs, empty and broken replies are retried after a growing pause, or after the
pause that the provider asks for. If that is longer than `longest_pause_s`, the next model is called instead; the last
model is waited for.
Rule 2: a model gets `max_provider_failures` retries in one model call, then the next model is called, at once.
Rule 3: a context overflow and a refusal are not retried, since the same request would fail again.
Rule 4: a server that refuses a field of the request gets the request again without it (`models.refusals`). This is no
retry of rule 2.
Rule 5: no wait begins that would end later than `model_total_s` after the model call began.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never

from contracts.runs import events
from contracts.runs.decisions import TASK
from contracts.runs.payload import Usage
from contracts.runs.step_events import ReplyForm
from contracts.wire.faults import Code, Fault
from services.planner.run.calls import starting, tasks
from services.planner.run.commands import Handling, Rules
from services.planner.run.ending import budgets, terminal
from services.planner.run.people import pauses
from services.planner.run.state.run import Event, Run
from services.planner.run.turn.decision import Calls, Decision, Failed, Final, Invalid, OwnDecision
from services.planner.run.turn.next_step import next_asked, run_after
from services.shared.budgets.totals import spent

FIELD_REFUSED: frozenset[Code] = frozenset({"response_format_refused", "field_refused"})
MAX_FIELDS_REFUSED = 16
"""Of one model in one model call."""
MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Remedy:
    """Call `model` after `wait_s` seconds: a retry of the failed model, or a fallback to the next one."""

    then: Literal["retry", "fallback"]
    model: str
    wait_s: float


def remedy(run: Run, failed: Failed, now: int, rules: Rules) -> Remedy | None:
    """Return what follows a failed request of the model call in flight, or None if the call has failed for good."""
    codes = [each.fault.code for each in run.failed if each.model == run.calling]
    refused = min(sum(code in FIELD_REFUSED for code in codes), MAX_FIELDS_REFUSED)
    if failed.fault.code in FIELD_REFUSED and refused < MAX_FIELDS_REFUSED:
        return Remedy("retry", run.calling, 0.0)
    retries = len(codes) - refused
    names = list(dict.fromkeys([run.model, *(run.started.fallbacks if run.started else ())]))  # As they are tried.
    later = names[names.index(run.calling) + 1 :] if run.calling in names else names
    following = later[0] if later else None
    asked_for_s = failed.retry_after_s or 0.0
    is_too_long = asked_for_s > rules.longest_pause_s and following is not None
    if failed.fault.retryable and retries < rules.max_provider_failures and not is_too_long:
        grown_s = min(rules.longest_pause_s, rules.first_pause_s * 2.0 ** min(retries, MAX_DOUBLINGS))
        # Half of it is random, so that runs that failed together do not retry together.
        found = Remedy("retry", run.calling, max(asked_for_s, grown_s * (0.5 + failed.chance / 2)))
    elif following is not None and (failed.fault.retryable or failed.elsewhere):
        found = Remedy("fallback", following, 0.0)
    else:
        return None
    return found if now + found.wait_s * 1000 < run.call_at + rules.model_total_s * 1000 else None


def combined(run: Run, failed: Failed) -> Fault:
    """Return the fault of a model call that has failed for good: the last code, and the reasons of all models."""
    if not (failed.fault.retryable or failed.elsewhere):
        return failed.fault
    faults = {each.model: each.fault for each in run.failed} | {run.calling: failed.fault}
    return Fault(
        code=failed.fault.code,
        reason="; ".join(fault.reason for fault in faults.values()),
        retryable=any(fault.retryable for fault in faults.values()),
    )


MAX_REPAIR_CHARACTERS = 4000
OVERFLOW_LINE_CHARACTERS = (60, 400)
"""Shortest and longest line after a context overflow. The more lines a history has, the shorter they become."""
NOT_REVISED_WARNING = "a better answer was asked for, and did not come"


def resolve_decision(run: Run, decision: Decision, now: int, rules: Rules) -> Decision:
    """Resolve a decision against the limits of this run.

    - An invalid reply that may not be repaired any more becomes what can be salvaged from it.
    - A failed revision becomes the answer that was to be revised.
    - A reply that was cut becomes the part of the answer that it holds, where no other attempt follows.
    - A failed call for the missing text of an answer becomes the answer with what was shown of that text.

    A decision is resolved once, at `now`. The streamed text and the recorded events follow from that one resolution,
    even if the deadline passes in between.
    """
    if decision.resolved_at is not None:
        return decision
    resolved: Decision | None = None
    if isinstance(decision, Invalid):
        if run.repairs >= rules.max_repairs or budgets.spent(run_after(run, decision=decision), now) is not None:
            resolved = _salvaged(decision) or _unrevised(run, decision)
    elif isinstance(decision, Failed) and (
        remedy(run, decision, now, rules) is None
        or (decision.salvage is not None and budgets.spent(run_after(run, decision=decision), now) is not None)
    ):
        resolved = _unrevised(run, decision) or _salvaged(decision)
        if resolved is None and run.final_args is not None:
            shown = {"answer": decision.shown, "route": "partial"} if decision.shown.strip() else {}
            resolved = Final(args={**run.final_args, **shown}, has_text=bool(shown), usage=decision.usage)
    return replace(resolved or decision, resolved_at=now)


def _salvaged(decision: Invalid | Failed) -> Decision | None:
    salvage = decision.salvage
    return salvage and replace(salvage, form=with_rule(salvage.form or ReplyForm(form="text"), "salvaged"))


def with_rule(form: ReplyForm, rule: str) -> ReplyForm:
    """Return a form that needed one more rule to be read; the same for an empty one."""
    return form.model_copy(update={"rules": [*form.rules, rule]}) if rule else form


def _unrevised(run: Run, decision: Decision) -> Final | None:
    """Return the answer that was to be revised: an imperfect answer is better than none."""
    if not run.judged:
        return None
    return Final(args=run.judged, judged=True, usage=decision.usage, warnings=(*decision.warnings, NOT_REVISED_WARNING))


def text_of(run: Run, decision: Decision) -> str:
    """Return the full answer text if this decision ends the run with an answer, else "".

    Of a part of one message, that is the message up to its end, whether the run ends or not.
    """
    if decision.said is not None:
        return decision.message
    if isinstance(decision, Final) and (decision.has_text or run.final_args is not None):
        return terminal.answered(run, decision.args).raw_answer
    return ""


def decide(run: Run, handling: Handling, asked: events.Asked, decision: Decision, rules: Rules) -> list[Event]:
    """Return the events of a decision. A streamed decision is resolved already, and stays so."""
    decision = resolve_decision(run, decision, handling.progress.now, rules)
    match decision:
        case Calls():
            return _step_of_calls(run, handling, asked, decision)
        case OwnDecision():
            return rules.strategy.on_decision(run, handling, asked, decision, rules)
        case Final() if not decision.has_text and run.final_args is None:
            reason = "the final response held no answer; its text is asked for alone"
            repaired = _repaired(asked, reason, decision.usage, kind="answer", args=decision.args)
            return _ask_again(run, handling, asked, decision, "repair", repaired, args=decision.args)
        case Final():
            return _revision(run, handling, asked, decision) or _step_of_answer(run, handling, asked, decision)
        case Invalid():
            return _repair(run, handling, asked, decision, rules)
        case Failed():
            return _fail(run, handling, asked, decision, rules)
        case _:
            assert_never(decision)


def _repaired(asked: events.Asked, reason: str, usage: Usage, **fields: Any) -> events.Repaired:
    return events.Repaired(turn=asked.turn, attempt=asked.attempt, reason=reason, usage=usage, **fields)


def _ask_again(
    run: Run,
    handling: Handling,
    asked: events.Asked,
    decision: Decision,
    cause: events.AskedCause,
    *facts: Event,
    args: dict[str, Any] | None = None,
) -> list[Event]:
    """Return `facts` and a further `asked`, as far as the budgets go. `args`: those of an unfinished final response."""
    if (end := _out_of_budget(run, handling, decision, args)) is None:
        return [*facts, next_asked(run, handling, asked.turn, asked.attempt + 1, cause)]
    return [*facts, end] if end.type == "paused" else [end]


def _out_of_budget(
    run: Run, handling: Handling, decision: Decision, args: dict[str, Any] | None = None
) -> Event | None:
    """Return the event of a budget that forbids another model call after this decision, or None."""
    later = run_after(run, decision=decision)
    budget = budgets.spent(later, handling.progress.now)
    return None if budget is None else budgets.out_of(later, budget, handling.progress.now, args)


def step_of(
    asked: events.Asked, decision: Decision, node: str, status: events.StepStatus, **fields: object
) -> events.Step:
    """Return the step of a decision of the model call in flight."""
    return events.Step.model_validate(
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
            "form": None if decision.form is None else with_rule(decision.form, "repaired" * (asked.cause == "repair")),
            "opaque": decision.opaque,
            "part": asked.part,
            "said": decision.said or "",
            "shown_to": len(decision.message),
            **fields,
        }
    )


def _step_of_calls(run: Run, handling: Handling, asked: events.Asked, decision: Calls) -> list[Event]:
    # The join counts with the branches, so that a plan that has started can finish.
    budget = budgets.spent_calls(run, len(decision.calls) + (decision.join is not None))
    if budget is not None:
        skipped = step_of(asked, decision, decision.node, "skipped", latency_ms=_latency_ms(run, handling))
        return [skipped, budgets.out_of(run_after(run, decision=decision), budget, handling.progress.now)]
    calls = [
        events.PlannedCall(call_id=f"{asked.turn}-{n}", tool=tool, args=args)
        for n, (tool, args) in enumerate(decision.calls, 1)
    ]
    refused = [
        events.Observed(call_id=calls[index].call_id, tool=calls[index].tool, status="failed", failure=fault)
        for index, fault in decision.refused.items()
    ]
    if decision.node == TASK:
        calls, refused = tasks.with_shares(run_after(run, decision=decision), calls)
    started = step_of(asked, decision, decision.node, "started", calls=calls, join=decision.join, note=decision.note)
    ended = {each.call_id for each in refused}
    open_calls = [call for call in calls if call.call_id not in ended]
    return [started, *refused, *starting.held(run, handling.progress.now, asked.turn, open_calls)]


def _revision(run: Run, handling: Handling, asked: events.Asked, decision: Final) -> list[Event]:
    """Return the request for a better answer than one that its critique finds wanting; empty: the answer stands."""
    critique, reflection = handling.progress.critique, run.started.reflection if run.started else None
    if critique is None or critique.score is None or reflection is None:
        return []
    if critique.score >= reflection.threshold or run.revisions >= reflection.max_revisions:
        return []
    usage = spent(decision.usage, critique.usage)
    if budgets.spent(run_after(run, decision=replace(decision, usage=usage)), handling.progress.now) is not None:
        return []  # An imperfect answer is better than none.
    reason = f"the answer was judged {critique.score:g} of 1: {critique.feedback}"[:MAX_REPAIR_CHARACTERS]
    reply = str(decision.args.get("answer", ""))[:MAX_REPAIR_CHARACTERS]
    # Stored with its score, in case that no better answer follows.
    args = {
        **decision.args,
        "confidence": critique.score,
        "extra": terminal.answered(run, decision.args, critique.score).extra,
    }
    repaired = _repaired(asked, reason, usage, kind="revision", reply=reply, args=args)
    return [repaired, next_asked(run, handling, asked.turn, asked.attempt + 1, "repair")]


def _step_of_answer(run: Run, handling: Handling, asked: events.Asked, decision: Final) -> list[Event]:
    critique = handling.progress.critique
    score = critique.score if critique is not None else None
    if critique is not None:
        decision = replace(decision, usage=spent(decision.usage, critique.usage))
    started = step_of(asked, decision, decision.node, "started")
    done = terminal.answered(run_after(run, decision=decision), decision.args, score)
    status: events.StepStatus = "failed" if done.reason == "no_path" else "succeeded"
    ended = events.Step(
        step=asked.turn, node=decision.node, status=status, latency_ms=_latency_ms(run, handling), attempt=asked.attempt
    )
    follows = pauses.after_answer(run_after(run, decision=decision), done, decision.args, handling.progress.now)
    if not any(event.type == "done" for event in follows):  # The run continues, so the step keeps the answer.
        started = started.model_copy(update={"answer": done.raw_answer})
    return [started, ended, *follows]


def _latency_ms(run: Run, handling: Handling) -> int:
    """Time since the first model call of this turn, in any handling."""
    return max(0, handling.progress.now - run.turn_at)


def _repair(run: Run, handling: Handling, asked: events.Asked, decision: Invalid, rules: Rules) -> list[Event]:
    if run.repairs < rules.max_repairs:
        reply = decision.reply[:MAX_REPAIR_CHARACTERS]
        repaired = _repaired(asked, decision.complaint, decision.usage, reply=reply)
        return _ask_again(run, handling, asked, decision, "repair", repaired)
    invalid = step_of(asked, decision, decision.node, "invalid", latency_ms=_latency_ms(run, handling))
    return [invalid, terminal.no_path(run_after(run, decision=decision), decision.complaint)]


def _fail(run: Run, handling: Handling, asked: events.Asked, decision: Failed, rules: Rules) -> list[Event]:
    if decision.fault.code == "context_too_long" and run.compactions == 0:
        shortest, longest = OVERFLOW_LINE_CHARACTERS
        length = rules.strategy.length(run)
        line = max(shortest, min(longest, length.characters // (4 * max(1, length.messages))))
        compacted = events.Compacted(turn=asked.turn, cause="overflow", line_characters=line)
        return _ask_again(run, handling, asked, decision, "compacted", compacted)
    chosen = remedy(run, decision, decision.resolved_at or handling.progress.now, rules)
    if chosen is None:
        fault = combined(run, decision)
        if (ran := run.strategy_state.ran) is not None:
            fault = fault.model_copy(update={"reason": f"{ran}; {fault.reason}"})
        if fault.code == "context_too_long":
            length = rules.strategy.length(run)
            size = f"compacted, it has {length.messages:,} messages with {length.characters:,} characters"
            fault = fault.model_copy(update={"reason": f"{fault.reason}: {size}"})
        return [terminal.failed(run_after(run, decision=decision), fault, refusal=decision.refusal)]
    failed = events.ModelFailed(
        turn=asked.turn,
        attempt=asked.attempt,
        model=run.calling,
        fault=decision.fault,
        then=chosen.then,
        next_model=chosen.model,
        wait_s=chosen.wait_s,
        retry_at=handling.progress.now + math.ceil(chosen.wait_s * 1000),
        usage=decision.usage,
    )
    if (end := _out_of_budget(run, handling, decision)) is None:
        return [failed]
    return [failed, end] if end.type == "paused" else [end]
