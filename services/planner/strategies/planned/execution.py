"""The state of a plan, and how it is carried out: call after call, each with what earlier ones returned. Pure.

PLAN is the step that decides, EXECUTE carries out the calls, RESPOND writes the answer. A plan that was rejected has
ended at once.

Rule 1: a plan with errors is not started, nor is a plan that is too large for the limits of its run.
Rule 2: a call is resolved once all earlier ones have succeeded, in the record that announces it. So any planner
that handles the outcome of a call continues with the next one, and no call is resolved twice.
Rule 3: the first call that fails halts the plan, as do the deadline and a new question of the user. The model answers
from what there is, and reads which calls were not executed.
Rule 4: a template that names an artifact gives its reference. tool_runner puts the value in its place.
Rule 5: the deadline halts the plan and does not end the run: the answer has `ANSWER_AFTER_DEADLINE_MS` more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contracts.artifacts import ArtifactRef
from contracts.runs.decisions import CallStatus, Plan, PlanCall, PlanError
from contracts.runs.events import Called, Observed, PlannedCall, Step
from contracts.runs.inbox import TimerFired
from contracts.wire.base import KIB, MAX_INLINE_BYTES
from contracts.wire.faults import Fault
from runwire.plans import ArgumentsTooLarge, MissingOutputField, holds_templates, resolve
from services.planner.run.calls import starting
from services.planner.run.commands import Append, Command, Handling, Rules, SetTimer
from services.planner.run.ending import budgets
from services.planner.run.people import pauses
from services.planner.run.state.run import Event, Run, StrategyState
from services.planner.run.turn import next_step
from services.planner.run.turn.decision import OwnDecision
from services.shared.redaction.json_values import wire_size
from services.shared.redaction.separation import dotted, restore
from services.shared.redaction.stored_values import as_reference

PLAN, EXECUTE, RESPOND = "plan", "execute", "respond"
"""Nodes of the steps. Steps of the strategy `react` may have the node `plan` too: with calls, and without a plan."""
PLANNING = "__planning__"
"""The one function that a request for a plan offers."""
MAX_NAMED_CALLS = 20
MAX_OUTLINE_CHARACTERS = 1000
"""Of the reasoning of a plan that is too large to be shown."""
_STATUS: dict[str, CallStatus] = {"succeeded": "success", "failed": "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(OwnDecision):
    """Run the calls of a plan one after another; where it has errors, tell the model instead, and run nothing."""

    plan: Plan
    errors: tuple[PlanError, ...] = ()
    errors_left_out: int = 0


@dataclass(frozen=True, slots=True)
class ActivePlan:
    """A plan that the run works on, or whose results the model is to answer from."""

    step: Step
    """The decision, with the plan."""
    has_begun: bool = False
    has_ended: bool = False
    """No call of it follows: the next request to the model asks for the answer."""
    is_late: bool = False
    """The deadline has halted it."""
    halt_reason: str | None = None
    """Why calls of it were not executed, or failed."""
    ended_as: Sequence[CallStatus] = ()
    """The statuses of its calls, once all have ended."""

    @property
    def calls(self) -> Sequence[PlanCall]:
        """The calls of the plan, in their order."""
        return self.step.plan.calls if self.step.plan is not None else ()

    def call_id(self, index: int) -> str:
        """Return the id of a call of the plan."""
        return call_id(self.step, index)

    def statuses(self, outcomes: Mapping[str, Observed]) -> list[CallStatus]:
        """Return how each call has ended."""
        found = [outcomes.get(self.call_id(index)) for index in range(len(self.calls))]
        return ["not_executed" if each is None else _STATUS[each.status] for each in found]

    def resolved(self) -> set[str]:
        """Return the ids of the calls whose arguments hold templates."""
        return {self.call_id(index) for index, call in enumerate(self.calls) if holds_templates(call.arguments)}


@dataclass(frozen=True, slots=True)
class PlannedState(StrategyState):
    """The state of the strategy."""

    plan: ActivePlan | None = None
    """The plan that the next request, or the next call, is about."""
    inputs_read: int = 0
    """How many inputs the model has received so far. A new one may need calls, so the model plans again."""

    @property
    def is_late(self) -> bool:
        """Whether the deadline has halted the plan."""
        return self.plan is not None and self.plan.is_late

    @property
    def ran(self) -> str | None:
        """What came of the plan that was carried out, call by call."""
        if self.plan is None or not self.plan.ended_as:
            return None
        pairs = zip(self.plan.calls, self.plan.ended_as, strict=False)
        calls = [f"{call.tool_name}: {status.replace('_', ' ')}" for call, status in pairs]
        more = f" and {len(calls) - MAX_NAMED_CALLS} more" if len(calls) > MAX_NAMED_CALLS else ""
        reason = f"was halted ({self.plan.halt_reason})" if self.plan.halt_reason is not None else "was carried out"
        return f"the plan {reason}, its calls: {', '.join(calls[:MAX_NAMED_CALLS])}{more}"

    @property
    def stage(self) -> str:
        """What the next request asks for: a plan, or the answer from what came of one."""
        return RESPOND if self.plan is not None and self.plan.has_ended else PLAN


def state_of(run: Run) -> PlannedState:
    """Return the state of a run with this strategy."""
    return run.strategy_state if isinstance(run.strategy_state, PlannedState) else PlannedState()


def call_id(step: Step, index: int) -> str:
    """Return the id of a call of a step's plan. Calls are numbered from 0, as in templates."""
    return f"{step.step}-{index}"


def outline(plan: Plan) -> dict[str, Any]:
    """Return what is shown of a plan that is too large: the beginning of its reasoning, and the names of its tools."""
    calls = [{"tool_name": call.tool_name} for call in plan.calls]
    return {"reasoning": plan.reasoning[:MAX_OUTLINE_CHARACTERS], "calls": calls}


ANSWER_AFTER_DEADLINE_MS = 30_000
MAX_INSERTED_BYTES = 128 * KIB
"""Of the values that replace the templates of one call. Its record also holds the largest outcome, and the arguments
once more for a person who approves them."""
REPLACED = "the user has replaced the question"
_WHOLE = dotted(())
_ARTIFACT = ("artifact",)


def decided(run: Run, handling: Handling, step: Step, decision: Planned, rules: Rules) -> list[Event]:
    """Return what follows a plan: its first call, or a request for the answer. `step`: the decision as it begins."""
    now = handling.progress.now
    later, latency_ms = next_step.run_after(run, decision=decision), max(0, now - run.turn_at)
    step = step.model_copy(update={"plan": decision.plan})
    budget = budgets.spent_for_step(later, now) or budgets.spent_calls(
        run, 0 if decision.errors else len(decision.plan.calls)
    )
    if decision.errors:
        errors = {"errors": list(decision.errors), "errors_left_out": decision.errors_left_out}
        count, first = len(decision.errors) + decision.errors_left_out, decision.errors[0].error.type
        more = f" and {count - 1} more" if count > 1 else ""
        warnings = [*step.warnings, f"the plan was rejected, and nothing of it ran: {first}{more}"]
        invalid = step.model_copy(
            update={"status": "invalid", "latency_ms": latency_ms, "warnings": warnings, **errors}
        )
        if budget is not None:
            return [invalid, budgets.out_of(later, budget, now)]
        return [invalid, *next_step.ask_next(run, handling, rules)]
    ended = Step(step=step.step, node=PLAN, status="succeeded", latency_ms=latency_ms)
    if budget is None:
        return [step, ended, *_first_call(run, handling, ActivePlan(step), step.by)]
    end = budgets.out_of(later, budget, now)
    if end.type == "paused":  # A top-up lets it begin.
        return [step, ended, end]
    return [step.model_copy(update={"status": "skipped", "latency_ms": latency_ms}), end]


def begin(run: Run, handling: Handling, active: ActivePlan) -> list[Event]:
    """Return the first call of a plan that waited for a top-up, or the event of a budget that does not carry it."""
    now = handling.progress.now
    if (budget := budgets.spent_for_step(run, now) or budgets.spent_calls(run, len(active.calls))) is not None:
        return [budgets.out_of(run, budget, now)]
    return _first_call(run, handling, active, handling.incoming.owner)


def after_call(
    run: Run, handling: Handling, active: ActivePlan, rules: Rules, last: Sequence[Observed] = ()
) -> list[Event]:
    """Return what follows a call: the next one, or the end and the next request. `last`: outcomes in this record."""
    now = handling.progress.now
    outcomes = run.observed | {each.call_id: each for each in last}
    failure = next((each.failure for each in outcomes.values() if each.status == "failed"), None)
    is_late = run.deadline_at is not None and now >= run.deadline_at
    if is_late and run.limits.grace_s > 0:
        return [budgets.out_of(next_step.run_after(run, observed=last), budgets.deadline(run), now)]
    # tool_runner may notice it before this clock does.
    is_late = is_late or (failure is not None and failure.code == "deadline_passed" and not run.limits.grace_s)
    index = len(outcomes)
    if failure is not None or is_late or index == len(active.calls) or _is_replaced(run):
        return _ended(run, handling, active, rules, outcomes, last, is_late=is_late)
    called = _next_call(run, handling, active, active.calls[index], outcomes)
    if not isinstance(called, Observed):
        return called
    outcomes[called.call_id] = called
    return [called, *_ended(run, handling, active, rules, outcomes, [*last, called], is_late=False)]


def at_deadline(run: Run, handling: Handling, active: ActivePlan, timer: TimerFired) -> Command | None:
    """Return what the deadline does to a plan: it halts a plan that is carried out. None: nothing but the general rule.

    The outcome of a call may have halted the plan before this timer fired. Then the answer is asked for, or its own
    deadline is set.
    """
    is_asked = run.asked is not None or run.retry is not None or run.turn != active.step.step
    if active.is_late and not is_asked:
        return pauses.wake(run, handling.progress)
    if timer.at not in {None, run.deadline_at} or run.waits_since is not None:
        if run.deadline_at is None or not active.is_late or run.waits_since is not None:
            return None
        is_set = ("deadline", run.deadline_at) in handling.progress.timers
        return None if is_set else SetTimer("deadline", run.deadline_at)
    if not active.has_begun or active.has_ended or run.limits.grace_s > 0:
        return None
    fault = Fault(code="deadline_passed", reason=f"the run's {budgets.deadline(run)} passed during this call")
    failed = [
        Observed(call_id=call.call_id, tool=call.tool, status="failed", failure=fault) for call in run.open.values()
    ]
    outcomes = run.observed | {each.call_id: each for each in failed}
    return Append([*failed, _end_of(run, handling, active, outcomes, is_late=True)])


def _is_replaced(run: Run) -> bool:
    return any(added.redirect for added in run.inputs.unread)


def _first_call(run: Run, handling: Handling, active: ActivePlan, owner: str | None) -> list[Event]:
    planned = active.calls[0]
    call = PlannedCall(call_id=active.call_id(0), tool=planned.tool_name, args=planned.arguments)
    step = Step(
        step=active.step.step, node=EXECUTE, status="started", calls=[call], by=owner, attempt=active.step.attempt
    )
    return [step, *_held(run, handling, active, 0, call)]


def _next_call(
    run: Run, handling: Handling, active: ActivePlan, planned: PlanCall, outcomes: Mapping[str, Observed]
) -> list[Event] | Observed:
    """Return the events of the next call, or its outcome where its arguments cannot be made."""
    index = len(outcomes)
    call_id = active.call_id(index)
    try:
        args = _resolved(planned, [outcomes[active.call_id(earlier)] for earlier in range(index)])
    except (MissingOutputField, ArgumentsTooLarge) as error:
        is_missing = isinstance(error, MissingOutputField)
        fault = Fault(code="missing_output_field" if is_missing else "invalid_args", reason=str(error))
        return Observed(call_id=call_id, tool=planned.tool_name, status="failed", failure=fault)
    call = PlannedCall(call_id=call_id, tool=planned.tool_name, args=args, resolved=args != planned.arguments)
    called = Called(step=active.step.step, by=handling.incoming.owner, calls=[call])
    return [called, *_held(run, handling, active, index, call)]


def _held(run: Run, handling: Handling, active: ActivePlan, index: int, call: PlannedCall) -> list[Event]:
    """Return the pause of a call that a person must approve, with the plan, or its outline where it is large, in it."""
    plan = active.step.plan
    shown = plan.model_dump(mode="json") if plan is not None else {}
    if plan is not None and wire_size(shown) > MAX_INLINE_BYTES // 2:
        shown = outline(plan)
    payload = {"plan": shown, "call": index}
    return [
        pause.model_copy(update={"payload": payload})
        for pause in starting.held(run, handling.progress.now, active.step.step, [call])
    ]


def _ended(
    run: Run,
    handling: Handling,
    active: ActivePlan,
    rules: Rules,
    outcomes: Mapping[str, Observed],
    last: Sequence[Observed],
    *,
    is_late: bool,
) -> list[Event]:
    """Return the end of the execution, and the request for the answer where nothing holds the run."""
    ended = _end_of(run, handling, active, outcomes, is_late=is_late)
    if pauses.is_held(run):
        return [ended]
    then = replace(
        next_step.run_after(run, observed=last),
        strategy_state=replace(state_of(run), plan=replace(active, has_ended=True)),
        deadline_at=ended.deadline_at or run.deadline_at,
    )
    return [ended, *next_step.go_on(then, handling, rules)]


def _end_of(
    run: Run, handling: Handling, active: ActivePlan, outcomes: Mapping[str, Observed], *, is_late: bool
) -> Step:
    statuses, now = active.statuses(outcomes), handling.progress.now
    warnings: list[str] = []
    reason: str | None = None
    for index, each in enumerate(outcomes.values()):
        if each.failure is not None:
            left = len(active.calls) - index - 1
            after = f"; {left} calls after it were not executed" if left else ""
            # The warning quotes no text of a tool.
            warnings = [f"call {index} of the plan ({each.tool}) failed: {each.failure.code}{after}"]
            reason = f"{each.failure.code}: {each.failure.reason}"
            break
    if reason is None and "not_executed" in statuses:
        reason = REPLACED if _is_replaced(run) and not is_late else f"the run's {budgets.deadline(run)} has passed"
    return Step(
        step=active.step.step,
        node=EXECUTE,
        status="succeeded" if set(statuses) == {"success"} else "failed",
        latency_ms=max(0, now - run.step_at),
        note=starting.line_about(run, outcomes, active.resolved()) or None,
        statuses=statuses,
        halt_reason=reason,
        deadline_at=now + ANSWER_AFTER_DEADLINE_MS if is_late else None,
        warnings=[f"budget exhausted: {budgets.deadline(run)}"] if is_late else warnings,
    )


@dataclass(frozen=True, slots=True)
class _Stored:
    """A value of a result that is stored as an artifact."""

    ref: ArtifactRef


def _resolved(planned: PlanCall, outcomes: Sequence[Observed]) -> dict[str, Any]:
    """Return the arguments of a call. Raises MissingOutputField and ArgumentsTooLarge."""
    outputs = []
    for each in outcomes:  # Stored parts of a result become `_Stored`.
        parts = {path: _Stored(ref) if (ref := as_reference(part)) else part for path, part in each.artifacts.items()}
        outputs.append(parts[_WHOLE] if _WHOLE in parts else restore(each.observation, parts))

    def reference(index: int, path: tuple[str, ...], value: Any, rest: tuple[str, ...]) -> Any:
        if isinstance(value, _Stored):
            return _as_argument(value.ref, rest)
        if rest:
            return None
        responded = outcomes[index].responded
        if path == _ARTIFACT and responded is not None and responded.ref is not None:
            return _as_argument(responded.ref, rest)
        return _plain(value)

    return resolve(planned.arguments, outputs, reference, MAX_INSERTED_BYTES)


def _as_argument(ref: ArtifactRef, path: Sequence[str]) -> dict[str, Any]:
    meant = ref if not path else ref.model_copy(update={"path": [*(ref.path or ()), *path]})
    return meant.model_dump(mode="json", exclude_none=True)


def _plain(value: Any) -> Any:
    """Return a value with references in place of its stored parts."""
    if isinstance(value, _Stored):
        return _as_argument(value.ref, ())
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
