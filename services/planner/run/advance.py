"""The one next thing to do for a message, given the run. Pure: no clock, no await, no randomness.

Called again after each move, until it says Ack or Silent. What each message may do:

| message | run not started | model in flight | calls open | paused | run ended |
| --- | --- | --- | --- | --- | --- |
| request | keep the context, run_started, asked | owner: asked (again) | owner: dispatch | owner: dispatch | close, ack |
| call_finished | ack | ack | observed; called if calls wait or a join is due; last: step, asked or budget | observed, paused | close, ack |
| cancel | cancelled | stopping, read what was shown, cancelled | cancelled | read what was shown, cancelled | close, ack |
| timer deadline | ack | budget | budget | ack | close, ack |
| timer pause | ack | ack | ack | done | close, ack |
| top_up | ack | topped_up; wake | topped_up; wake | topped_up, resumed; wake | close, ack |
| resumed | ack | ack | called, where calls wait | ack | close, ack |
| poisoned | error | error | error | error | close, ack |

"owner": the message whose handling announced what is in flight. "budget": `done`, or `paused` where the run has a grace. Where nothing is
in flight, whoever looks asks for the next step, but for `top_up`: people are heard on a lane that never waits behind a model.
While the run is stopping, every message but cancel and poisoned is acknowledged. An illegal message changes nothing and is acknowledged.
"""

from contracts.events import Asked, Called, Observed, Paused, Stopping, Triaged
from contracts.faults import Fault
from services.planner.run import budgets, outcomes, terminal
from services.planner.run.commands import (
    Ack,
    Append,
    Ask,
    AskCritique,
    AskEffort,
    AwaitTools,
    Close,
    Dispatch,
    KeepContext,
    Open,
    ReadShown,
    Rules,
    Say,
    SetTimer,
    Silent,
    Todo,
    Told,
    Wake,
)
from services.planner.run.decide import after, awaits_triage, decide, next_asked
from services.planner.run.decision import Final
from services.planner.run.state import Run

MAX_LOST = 5
"""Attempts of one turn that may die with their process before the run gives up: something in it kills planners."""
_POISONED = Fault(code="poisoned", reason="a message of this run could not be handled and was set aside")


def advance(run: Run, told: Told, rules: Rules) -> Todo:
    """Say the one next thing to do for `told`."""
    todo = _next(run, told, rules)
    return Append(terminal.shown(run, todo.events)) if isinstance(todo, Append) else todo


def _next(run: Run, told: Told, rules: Rules) -> Todo:
    if run.terminal is not None:
        return Ack() if told.closed else Close()
    if told.kind == "cancel":
        return _cancel(run, told)
    if told.kind == "poisoned":
        return Append([terminal.failed(run, _POISONED)])
    if run.stopping is not None:
        return Ack()  # The message of the cancel ends the run, whoever handles it.
    if run.started is None:
        return _open(told, rules)
    if told.kind == "timer":
        return _remind(run, told)
    if told.kind == "top_up":
        return _top_up(run, told)
    if told.kind == "request" and not told.opened:
        return Open()
    if told.finished is not None and told.finished.call_id in run.open:
        observed = Observed.model_validate(told.finished.model_dump(exclude={"v", "kind"}))
        return Append(outcomes.settle(run, told, observed, rules))
    return _go_on(run, told, rules)


def _cancel(run: Run, told: Told) -> Todo:
    """Take the call away from the model first: what is shown by then is what the run ends with."""
    if run.asked is not None:
        return Append([Stopping(reason=told.reason)])
    if run.undecided and told.shown is None:
        return ReadShown()
    reason = run.stopping.reason if run.stopping is not None else told.reason
    return Append([terminal.cancelled(run, reason, told.shown or "")])


def _open(told: Told, rules: Rules) -> Todo:
    if told.started is None:
        return Ack()  # A late message of a run that has been purged.
    if not told.waited:
        return AwaitTools()
    first = [told.started]
    opened = Run(started=told.started, model=told.started.model, limits=told.started.limits, deadline_at=told.started.deadline_at)
    if told.refusal is not None:
        return Append([*first, terminal.failed(opened, told.refusal)])
    if opened.deadline_at is not None and told.now >= opened.deadline_at:
        # It has waited too long for a planner; nobody can top it up before it is opened.
        return Append([*first, terminal.budget_exhausted(opened, budgets.deadline(opened))])
    if told.context and not told.kept:
        return KeepContext()
    return Append([*first, *outcomes.go_on(opened, told, rules)])


def _remind(run: Run, told: Told) -> Todo:
    """A timer went off. One that was set anew meanwhile, or whose reason is gone, changes nothing."""
    timer = told.timer
    if timer is None:
        return Ack()
    if timer.timer == "pause":
        ends = run.paused is not None and timer.at == run.paused.until
        return Append([terminal.budget_exhausted(run, run.paused.budget)]) if run.paused is not None and ends else Ack()
    if run.paused is not None:
        return _wait(run, told, run.paused)
    if timer.at not in {None, run.deadline_at}:
        return Ack()
    return Append([budgets.out_of(run, budgets.deadline(run), told.now)])


def _top_up(run: Run, told: Told) -> Todo:
    if told.wish not in run.topped_up_by:
        facts = budgets.topped_up(run, told.limits, told.now, told.wish)
        return Append(facts) if facts else Ack()
    if run.deadline_at is not None and ("deadline", run.deadline_at) not in told.timers:
        return SetTimer("deadline", run.deadline_at)
    return Ack() if told.woken else Wake()


def _wait(run: Run, told: Told, paused: Paused) -> Todo:
    """The run is paused: see that its end is timed, and leave it alone."""
    if told.now >= paused.until:
        return Append([terminal.budget_exhausted(run, paused.budget)])
    return Ack() if ("pause", paused.until) in told.timers else SetTimer("pause", paused.until)


def _ask_after_a_loss(run: Run, told: Told, asked: Asked) -> Todo:
    if run.lost >= MAX_LOST:
        reason = f"asking the model was begun {run.lost + 1} times and never came to an end"
        return Append([terminal.failed(run, Fault(code="too_many_attempts", reason=reason))])
    return Append([next_asked(run, told, asked.turn, asked.attempt + 1, "lost")])


def _ask(run: Run, told: Told, asked: Asked, rules: Rules) -> Todo:
    if asked.by != told.owner or (asked.holder != told.holder and told.asked):
        return Silent() if told.asked else Ack()
    has_reply = told.decision is not None or told.unsaid is not None
    if not has_reply and run.deadline_at is not None and told.now >= run.deadline_at:
        return Append([budgets.out_of(run, budgets.deadline(run), told.now)])
    if asked.holder != told.holder:
        return _ask_after_a_loss(run, told, asked)
    if run.effort == "auto" or awaits_triage(run, run.turn):
        if told.triaged is None:
            return AskEffort(asked)
        if run.effort != told.triaged.effort:
            model = told.triaged.model or (run.model if awaits_triage(run, run.turn) else None)
            return Append([Triaged(effort=told.triaged.effort, model=model, usage=told.triaged.usage)])
    decision = told.decision
    if decision is None:
        return Ask(asked) if told.unsaid is None else Say(asked, told.unsaid)
    if isinstance(decision, Final) and decision.restate:
        return Append([next_asked(run, told, asked.turn, asked.attempt + 1, "restated")])
    if isinstance(decision, Final) and decision.has_text and told.critique is None and _wants_critique(run, told, decision):
        return AskCritique(asked, decision.args)
    return Append(decide(run, told, asked, decision, rules))


def _wants_critique(run: Run, told: Told, answer: Final) -> bool:
    if run.started is None or run.started.reflection is None or answer.judged:
        return False
    return budgets.spent(after(run, decision=answer), told.now) is None


def _send(run: Run, told: Told) -> Dispatch | None:
    """The calls that this message has announced and not sent yet: nobody else will send them."""
    mine = [call for call in run.open.values() if run.owner.get(call.call_id) == told.owner and call.call_id not in told.dispatched]
    return Dispatch(mine, frozenset(call.call_id for call in mine) - told.announced) if mine else None


def _dispatch(run: Run, told: Told) -> Todo:
    if (calls := _send(run, told)) is not None:
        return calls
    waiting, free = outcomes.waiting_calls(run), run.limits.max_parallel - len(run.owner)
    if waiting and free > 0 and run.step is not None:
        # Places became free while the run was paused, or a top-up gave it more.
        return Append([Called(step=run.step.step, by=told.owner, calls=waiting[:free])])
    return Ack()


def _go_on(run: Run, told: Told, rules: Rules) -> Todo:
    """Whatever is in flight belongs to a message. Where nothing is, whoever looks goes on."""
    if run.paused is not None:
        # A pause that came between announcing calls and sending them changes nothing about them: the run waits for their outcomes.
        return _send(run, told) or _wait(run, told, run.paused)
    if run.asked is not None:
        return _ask(run, told, run.asked, rules)
    if run.open:
        return _dispatch(run, told)
    if run.interrupted is not None:
        budget = budgets.spent(run, told.now)
        if budget is not None:
            return Append([budgets.out_of(run, budget, told.now)])
        return Append([next_asked(run, told, run.interrupted.turn, run.interrupted.attempt + 1, "resumed")])
    if run.step is not None and not run.concluded:
        return Append(outcomes.conclude(run, told, run.step, rules))
    return Append(outcomes.go_on(run, told, rules))
