"""The one next thing to do for a message, given the run. Pure: no clock, no await, no randomness.

Called again after each Append, Open, Ask and Dispatch, until it says Ack or Silent. What each message may do:

| message | run not started | model in flight | calls open | run ended |
| --- | --- | --- | --- | --- |
| request | run_started, asked | owner: ask (again) | owner: dispatch what is open | close, ack |
| call_finished | ack | observed | observed, and the last one: step, asked or done | close, ack |
| cancel | cancelled | cancelled | cancelled | close, ack |
| timer deadline | ack | done (budget) | done (budget) | close, ack |
| poisoned | error | error | error | close, ack |

An illegal message changes nothing and is acknowledged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from contracts.actions import FINAL_RESPONSE
from contracts.events import Asked, Called, Compacted, Observed, PlannedCall, Repaired, RunStarted, Step, StepStatus, Triaged
from contracts.faults import Fault
from contracts.inbox import CallFinished
from contracts.tools import ToolSpec

from . import endings
from .decisions import Calls, Decision, Failed, Final, Invalid
from .joins import JoinAbsent, JoinCall, branch_of, failed_join, resolve_join
from .judging import Critique, Triage
from .run import Event, Run, spent, take_in

Kind = Literal["request", "call_finished", "timer", "cancel", "poisoned"]

MAX_LOST = 5
"""Attempts of one turn that may die with their process before the run gives up: something in it kills planners."""
CHARACTERS_PER_TOKEN = 4
"""A rough average over languages and JSON; only the decision when to compact rests on it."""
_SHORT = 4000
_OVERFLOW_LINE = 400
_SHORTEST_LINE = 120


@dataclass(slots=True)
class Told:
    """A message in one handling. The handler fills in what it brings and what it has done; `advance` reads."""

    owner: str
    """`<stream>:<sequence>` of the message."""
    kind: Kind
    holder: str
    """Random token of this handling."""
    now: int
    """Unix ms when the handling looked last."""
    started: RunStarted | None = None
    """Of a request: what opening the run would record."""
    refusal: Fault | None = None
    """Of a request that cannot be opened: why."""
    finished: CallFinished | None = None
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    """Of an outcome: the run's tools, where a join may have to be checked against them."""
    reason: str = ""
    triaged: Triage | None = None
    critique: Critique | None = None
    decision: Decision | None = None
    """The model's reply, once there is one."""
    asked: bool = False
    """This handling appended an `asked` whose answer is not settled yet."""
    opened: bool = False
    closed: bool = False
    announced: set[str] = field(default_factory=set)
    """Call ids that this handling itself announced: nobody can have sent them before."""
    dispatched: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a deployment sets for all its runs."""

    max_repairs: int = 2
    max_provider_failures: int = 2
    max_characters: int = 400_000
    """Of the conversation, before it is compacted; about four to a token."""


@dataclass(frozen=True, slots=True)
class Append:
    """Write these events as one record, fenced."""

    events: list[Event]


@dataclass(frozen=True, slots=True)
class Open:
    """Set the run's deadline timer and enter it in the index."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the model under this fact."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class AskEffort:
    """Have a cheap call pick the effort, and the model where several are named."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class AskCritique:
    """Have the answer judged."""

    asked: Asked
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send these calls. Those in `again` may have been sent before."""

    calls: list[PlannedCall]
    again: frozenset[str]


@dataclass(frozen=True, slots=True)
class Close:
    """Bring the index up to date and cancel the timers of a run that has ended."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Nothing of this message is left to do."""


@dataclass(frozen=True, slots=True)
class Silent:
    """Somebody else owns the message now."""


Todo = Append | Open | Ask | AskEffort | AskCritique | Dispatch | Close | Ack | Silent


def advance(run: Run, told: Told, rules: Rules) -> Todo:
    """Say the one next thing to do for `told`."""
    if run.terminal is not None:
        return Ack() if told.closed else Close()
    if told.kind == "cancel":
        return Append([endings.cancelled(run, told.reason)])
    if told.kind == "poisoned":
        fault = Fault(code="poisoned", reason="a message of this run could not be handled and was set aside")
        return Append([endings.failed(run, fault)])
    if run.started is None:
        return _open(told, rules)
    if told.kind == "timer":
        return Append([endings.budget_exhausted(run, f"deadline_s of {run.started.limits.deadline_s:g}")])
    if told.kind == "request" and not told.opened:
        return Open()
    if told.finished is not None and told.finished.call_id in run.open:
        return Append(_settle(run, told, told.finished, rules))
    if run.asked is not None:
        return _ask(run, told, run.asked, rules)
    if run.open:
        return _dispatch(run, told)
    # Nothing is in flight and nothing has ended: whoever looks asks for the next step.
    return Append(_next(run, told, rules))


def _open(told: Told, rules: Rules) -> Todo:
    if told.started is None:
        return Ack()  # A late message of a run that has been purged.
    first = [told.started]
    opened = Run(started=told.started, model=told.started.model)
    if told.refusal is not None:
        return Append([*first, endings.failed(opened, told.refusal)])
    if told.started.deadline_at is not None and told.now >= told.started.deadline_at:
        return Append([*first, endings.budget_exhausted(opened, f"deadline_s of {told.started.limits.deadline_s:g}")])
    return Append([*first, *_next(opened, told, rules)])


def _ask(run: Run, told: Told, asked: Asked, rules: Rules) -> Todo:
    if asked.by != told.owner or (asked.holder != told.holder and told.asked):
        return Silent() if told.asked else Ack()
    if asked.holder != told.holder:
        if run.lost >= MAX_LOST:
            reason = f"asking the model was begun {run.lost + 1} times and never came to an end"
            return Append([endings.failed(run, Fault(code="too_many_attempts", reason=reason))])
        return Append([_asked(run, told, asked.turn, asked.attempt + 1, "lost")])
    if run.effort == "auto" or (run.effort is None and run.started is not None and len(run.started.models) > 1 and run.turn == 1):
        if told.triaged is None:
            return AskEffort(asked)
        if run.effort != told.triaged.effort:
            return Append([Triaged(effort=told.triaged.effort, model=told.triaged.model, usage=told.triaged.usage)])
    if told.decision is None:
        return Ask(asked)
    if isinstance(told.decision, Final) and told.decision.has_text and told.critique is None and _wants_critique(run):
        return AskCritique(asked, told.decision.args)
    return Append(_decide(run, told, asked, told.decision, rules))


def _dispatch(run: Run, told: Told) -> Todo:
    mine = [call for call in run.open.values() if run.owner.get(call.call_id) == told.owner and call.call_id not in told.dispatched]
    if not mine:
        return Ack()
    return Dispatch(mine, frozenset(call.call_id for call in mine) - told.announced)


def _decide(run: Run, told: Told, asked: Asked, decision: Decision, rules: Rules) -> list[Event]:
    match decision:
        case Calls():
            return _step_of_calls(run, asked, decision)
        case Final() if not decision.has_text and run.final_args is None:
            return _ask_for_the_text(run, told, asked, decision)
        case Final() if told.critique is not None and _is_wanting(run, told.critique):
            return _revise(run, told, asked, decision, told.critique)
        case Final():
            return _step_of_answer(run, asked, decision, told.critique)
        case Invalid():
            return _repair(run, told, asked, decision, rules)
        case Failed():
            return _fail(run, told, asked, decision, rules)
    raise AssertionError(f"no rule for {type(decision).__name__}")


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


def _step_of_calls(run: Run, asked: Asked, decision: Calls) -> list[Event]:
    limit = run.started.limits.max_tool_calls if run.started else None
    # A plan's join is reserved with its branches, so that what was begun can be finished.
    wanted = len(decision.calls) + (decision.join is not None)
    if limit is not None and run.usage.tool_calls + wanted > limit:
        skipped = _step(asked, decision, decision.node, "skipped")
        return [skipped, endings.budget_exhausted(_after(run, decision=decision), f"max_tool_calls of {limit}")]
    calls = [PlannedCall(call_id=f"{asked.turn}-{n}", tool=tool, args=args) for n, (tool, args) in enumerate(decision.calls, 1)]
    return [_step(asked, decision, decision.node, "started", calls=calls, join=decision.join, note=decision.note)]


def _wants_critique(run: Run) -> bool:
    return run.started is not None and run.started.reflection is not None


def _is_wanting(run: Run, critique: Critique) -> bool:
    reflection = run.started.reflection if run.started else None
    if reflection is None or critique.score is None:
        return False
    return critique.score < reflection.threshold and run.revisions < reflection.max_revisions


def _revise(run: Run, told: Told, asked: Asked, decision: Final, critique: Critique) -> list[Event]:
    reason = f"the answer was judged {critique.score:g} of 1: {critique.feedback}"[:_SHORT]
    reply = str(decision.args.get("answer", ""))[:_SHORT]
    usage = spent(decision.usage, critique.usage)
    repaired = Repaired(turn=asked.turn, attempt=asked.attempt, reason=reason, kind="revision", reply=reply, usage=usage)
    return [repaired, _asked(run, told, asked.turn, asked.attempt + 1, "repair")]


def _step_of_answer(run: Run, asked: Asked, decision: Final, critique: Critique | None) -> list[Event]:
    score = critique.score if critique is not None else None
    if critique is not None:
        decision = replace(decision, usage=spent(decision.usage, critique.usage))
    started = _step(asked, decision, FINAL_RESPONSE, "started")
    ended = Step(step=asked.turn, node=FINAL_RESPONSE, status="succeeded", latency_ms=0, attempt=asked.attempt)
    return [started, ended, endings.answered(_after(run, decision=decision), decision.args, score)]


def _repair(run: Run, told: Told, asked: Asked, decision: Invalid, rules: Rules) -> list[Event]:
    if run.repairs < rules.max_repairs:
        repaired = Repaired(
            turn=asked.turn, attempt=asked.attempt, reason=decision.complaint, reply=decision.reply[:_SHORT], usage=decision.usage
        )
        return [repaired, _asked(run, told, asked.turn, asked.attempt + 1, "repair")]
    if decision.salvage is not None:
        return _decide(run, told, asked, decision.salvage, rules)
    invalid = _step(asked, decision, "", "invalid")
    return [invalid, endings.no_path(_after(run, decision=decision), decision.complaint)]


def _fail(run: Run, told: Told, asked: Asked, decision: Failed, rules: Rules) -> list[Event]:
    if decision.again and run.failures < rules.max_provider_failures:
        return [_asked(run, told, asked.turn, asked.attempt + 1, "provider")]
    if decision.fault.code == "context_too_long" and run.compactions == 0:
        compacted = Compacted(turn=asked.turn, cause="overflow", line_characters=_OVERFLOW_LINE)
        return [compacted, _asked(run, told, asked.turn, asked.attempt + 1, "provider")]
    return [endings.failed(_after(run, decision=decision), decision.fault)]


def _ask_for_the_text(run: Run, told: Told, asked: Asked, decision: Final) -> list[Event]:
    reason = "the final response held no answer; its text is asked for alone"
    repaired = Repaired(turn=asked.turn, attempt=asked.attempt, reason=reason, kind="answer", args=decision.args, usage=decision.usage)
    return [repaired, _asked(run, told, asked.turn, asked.attempt + 1, "repair")]


def _settle(run: Run, told: Told, finished: CallFinished, rules: Rules) -> list[Event]:
    """A call has its outcome: record it, hand its place to a waiting call, and go on when it was the last."""
    observed = Observed.model_validate(finished.model_dump(exclude={"v", "kind"}))
    step = run.step
    waiting = [call for call in run.open.values() if call.call_id not in run.owner]
    if waiting and step is not None:
        return [observed, Called(step=step.step, by=told.owner, calls=waiting[:1])]
    if len(run.open) > 1 or step is None:
        return [observed]
    outcomes = {**run.observed, observed.call_id: observed}
    join = _join(run, told, step, outcomes)
    if isinstance(join, PlannedCall):
        return [observed, Called(step=step.step, by=told.owner, calls=[join], join=True)]
    status: StepStatus = "succeeded" if any(o.status == "succeeded" for o in outcomes.values()) else "failed"
    latency_ms = max(0, told.now - run.step_at)
    ended = Step(step=step.step, node=step.node, status=status, latency_ms=latency_ms, note=join)
    return [observed, ended, *_next(run, told, rules, observed)]


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


def _next(run: Run, told: Told, rules: Rules, observed: Observed | None = None) -> list[Event]:
    """Ask for the next decision, or end the run when it has spent what it may."""
    budget = _exhausted(run)
    if budget is not None:
        return [endings.budget_exhausted(_after(run, observed=observed), budget)]
    asked = _asked(run, told, run.turn + 1, 1, "turn")
    if run.characters <= rules.max_characters:
        return [asked]
    # Lines get shorter as steps get more, so that the whole comes well below the limit and stays there for a while.
    line = max(_SHORTEST_LINE, rules.max_characters // (4 * max(1, len(run.history))))
    return [Compacted(turn=run.turn + 1, cause="threshold", line_characters=line), asked]


def _asked(run: Run, told: Told, turn: int, attempt: int, cause: Literal["turn", "lost", "repair", "provider"]) -> Asked:
    return Asked(turn=turn, attempt=attempt, by=told.owner, holder=told.holder, model=run.model or None, cause=cause)


def _exhausted(run: Run) -> str | None:
    if run.started is None:
        return None
    limits, usage = run.started.limits, run.usage
    if run.turn >= limits.max_steps:
        return f"max_steps of {limits.max_steps}"
    if limits.max_tokens is not None and usage.prompt_tokens + usage.completion_tokens >= limits.max_tokens:
        return f"max_tokens of {limits.max_tokens}"
    if limits.max_cost_usd is not None and usage.cost_usd is not None and usage.cost_usd >= limits.max_cost_usd:
        return f"max_cost_usd of {limits.max_cost_usd:g}"
    return None


def _after(run: Run, *, decision: Decision | None = None, observed: Observed | None = None) -> Run:
    """What the ending of the run is made from, with the decision or outcome that is written in the very same record."""
    after = replace(run, artifacts={tool: dict(fields) for tool, fields in run.artifacts.items()}, sources=list(run.sources))
    if decision is not None:
        after.usage = spent(run.usage, decision.usage)
        after.warnings = [*run.warnings, *decision.warnings]
    if observed is not None:
        take_in(after, observed)
    return after
