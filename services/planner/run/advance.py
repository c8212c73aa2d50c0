"""Decides the next command for a message, given the run. Pure: no clock, no await, no randomness.

The handler calls `advance` again after each command, until it returns Ack or Abandon. What each message may do says
docs/rules/run.md, whose table a test plays.
"""

from collections.abc import Sequence
from dataclasses import replace

from contracts.runs import events, inbox
from contracts.runs.requests import RunRequested
from contracts.wire.faults import Fault
from services.planner.run import commands, opening
from services.planner.run.commands import Abandon, Ack, Append, Command, Handling, Progress, Rules
from services.planner.run.ending import budgets, terminal
from services.planner.run.people import inputs, pauses
from services.planner.run.state.fold import BY_SESSION
from services.planner.run.state.run import Event, Run, round_id, waiting_calls
from services.planner.run.turn import next_step
from services.planner.run.turn.decide import decide
from services.planner.run.turn.decision import Final
from services.planner.run.turn.next_step import awaits_triage, next_asked, run_after, with_unfinished

MAX_LOST = 5
"""Attempts of one turn that may die with their process. After that the run fails: it probably crashes planners."""
MAX_WAIT_IN_EFFECT_S = 2.0
"""A longer wait is a timer, so that no slot is held meanwhile."""
_POISONED = Fault(code="poisoned", reason="a message of this run could not be handled and was set aside")


def advance(run: Run, handling: Handling, rules: Rules) -> Command:
    """Return the next command for this handling."""
    incoming, is_open = handling.incoming, run.started is not None and run.terminal is None
    last = run.last_handling.get(incoming.owner, "")
    if incoming.attempt_token < last:
        return Abandon()  # A later handling has this message.
    if handling.progress.shown is not None:
        run = replace(run, shown=handling.progress.shown)
    command = _next(run, handling, rules)
    if isinstance(command, Append) and terminal.lacks_shown(run, handling, command.events):
        command = commands.ReadShown()
    if is_open and not incoming.is_first and last < incoming.attempt_token:
        # An earlier handling may be stopped now, so this one says first that it has the message. If the earlier one
        # recorded anything after this one has acknowledged the message, and died, nobody would go on with it; if it
        # acknowledged the message, nobody would go on with what this one records.
        return Append([events.Redelivered(by=incoming.owner, holder=incoming.attempt_token)])
    if isinstance(command, Append):
        facts = terminal.completed(run, handling, terminal.shown(run, command.events))
        return Append(facts if rules.direct is None else rules.direct.marked(run, facts))
    if not isinstance(command, Ack):
        return command
    opens = is_open and run.stopping is None and isinstance(incoming.message, RunRequested | inbox.RunBegins)
    if opens and not handling.progress.opened:
        return commands.Open()  # The index entry and the timer of a run that stays open may not be written yet.
    return pauses.before_ack(run, handling.progress) or command


def _next(run: Run, handling: Handling, rules: Rules) -> Command:
    message, progress = handling.incoming.message, handling.progress
    if isinstance(message, inbox.InputRequested) and (command := inputs.on_input(run, handling, message)) is not None:
        return command
    if isinstance(message, inbox.ResumeRequested) and (run.terminal is None or not progress.answered):
        return pauses.on_decision(run, handling, message)
    if run.terminal is not None:
        return Ack() if progress.closed or isinstance(message, commands.OfTasks) else commands.Close()
    if isinstance(message, inbox.CancelRequested):
        return _cancel(run, progress, message)
    if isinstance(message, commands.Poisoned):
        return Append([terminal.failed(run, _POISONED)])
    if isinstance(message, inbox.SessionAttached):
        return opening.attach(run, message)
    if isinstance(message, commands.OfPeople) or run.stopping is not None:
        return Ack()  # The cancel message ends a run that is stopping, in whichever planner handles it.
    if run.started is None:
        request = opening.request_of(run, message)
        if request is None:
            return opening.while_queued(run, handling, message)
        return opening.before_opening(run, handling, request) or _open(run, handling, request, rules)
    return _received(run, handling, message, rules)


def _received(run: Run, handling: Handling, message: commands.Received, rules: Rules) -> Command:
    """Return the next command of an open run."""
    if own := next_step.own_outcomes(run, handling):
        return _settle(run, handling, own, rules)
    match message:
        case inbox.TimerFired():
            return _on_timer(run, handling, message, rules)
        case inbox.TopUpRequested():
            if message.id in run.topped_up_by:
                return pauses.wake(run, handling.progress)
            facts = budgets.topped_up(run, message.limits, handling.progress.now, message.id)
            return Append(facts) if facts else Ack()
        case inbox.CallPaused() if (paused := pauses.of_call(run, handling, message)) is not None:
            return paused
        case inbox.CallFinished() if message.call_id in run.owner:
            return _settle(run, handling, [message], rules)
        case inbox.RunBegins() if (begun := _told(run, handling, message)) is not None:
            return begun
        case RunRequested() | inbox.CallFinished() | inbox.CallPaused() | inbox.RunResumed() | inbox.RunBegins():
            return _go_on(run, handling, rules)
        case _:
            return _told(run, handling, message) or Ack()


def _told(run: Run, handling: Handling, message: commands.Received) -> Command | None:
    """Return what a message about turns and tasks leads to; None: nothing."""
    fact: Event | None = None
    match message:
        case inbox.RunTaskSettled() if message.call_id in run.set_aside:
            fact = events.TaskSettled(call_id=message.call_id, task_id=message.task_id, spent=message.spent)
        case inbox.RunTasksPaused(paused=paused) if run.is_news(paused):
            fact = paused
        case inbox.RunYields(session_seq=seq) if seq > max(run.turn_news_seq, _turn_seq(run)):
            fact = events.Yielded(seq=seq)
        case inbox.RunBegins(session_seq=seq) if seq > max(run.turn_news_seq, _turn_seq(run)):
            # Without a pause of its turn the word to yield is still under way. It will be older than this.
            deadline = pauses.deadline_after(run, handling.progress.now) if run.yields else None
            if deadline is not None and ("deadline", deadline) not in handling.progress.timers:
                return commands.SetTimer("deadline", deadline)
            fact = events.Resumed(by=BY_SESSION, deadline_at=deadline, session_seq=seq)
    # A run that has its turn cannot be merged or refused.
    return None if fact is None else Append(run.while_paused(fact))


def _turn_seq(run: Run) -> int:
    """Return the sequence of the session's record that gave the run its first turn; 0: there is none."""
    return (run.started.conversation_seq or 0) if run.started is not None else 0


def _cancel(run: Run, progress: Progress, cancel: inbox.CancelRequested) -> Command:
    """Supersede the model call first: the run ends with the text that listeners have received by then."""
    if run.asked is not None:
        return Append([events.Stopping(reason=cancel.reason)])
    reason = run.stopping.reason if run.stopping is not None else cancel.reason
    return Append([terminal.cancelled(with_unfinished(run, progress), reason)])


def _open(run: Run, handling: Handling, request: RunRequested, rules: Rules) -> Command:
    progress = handling.progress
    if progress.opening is None or progress.opening.inputs < len(run.inputs.unread):
        return commands.Resolve()
    started, refusal = progress.opening.started, progress.opening.refusal
    opened = Run(started=started, model=started.model, limits=started.limits, deadline_at=started.deadline_at)
    if refusal is not None:
        return Append([started, terminal.failed(opened, refusal)])
    if opened.deadline_at is not None and progress.now >= opened.deadline_at:
        # The request waited too long for a planner. A run cannot be topped up before it is opened.
        return Append([started, terminal.budget_exhausted(opened, budgets.deadline(opened))])
    if request.tool_context and not progress.context_kept:
        return commands.KeepContext()
    if (rule := progress.opening.checked.rule) is not None:
        text = progress.opening.checked.text
        return Append([started, inputs.pause_of_rule(started, "question", rule, text, progress.now)])
    return Append([started, *next_step.go_on(opened, handling, rules)])


def _settle(run: Run, handling: Handling, ended: Sequence[inbox.CallFinished], rules: Rules) -> Command:
    """Record the outcomes of calls that have ended, as many as a record has room for, and what follows from them."""
    if _lacks_specs(run, handling.progress):
        return commands.LoadSpecs()
    observed = [
        events.Observed.model_validate(outcome.model_dump(exclude={"v", "kind"}))
        for outcome in ended
        if outcome.call_id in run.open
    ]
    return Append(next_step.settle(run, handling, next_step.first_that_fit(observed), rules))


def _lacks_specs(run: Run, progress: Progress) -> bool:
    return run.step is not None and run.step.join is not None and not run.joined and progress.specs is None


def _on_timer(run: Run, handling: Handling, timer: inbox.TimerFired, rules: Rules) -> Command:
    """A timer fired. It changes nothing if it was replaced meanwhile, or if its reason no longer holds."""
    if timer.timer == "retry":
        is_due = run.retry is not None and run.paused is None and timer.at == run.retry.retry_at
        return commands.Wake(timer.at or 0) if is_due and not handling.progress.woken else Ack()
    if timer.timer == "queue":
        return Ack()  # The run has the turn.
    if timer.timer == "pause":
        if expired := pauses.expire(run, max(handling.progress.now, timer.at or 0)):
            return expired
        if run.paused is not None and timer.at == run.paused.until:
            return Append([terminal.budget_exhausted(run, run.paused.budget)])
        return pauses.after_decision(run, handling.progress) if run.waits_seq else Ack()
    if run.paused is not None:
        return _wait(run, handling, run.paused)
    if (own := rules.strategy.on_deadline(run, handling, timer)) is not None:
        return own
    if timer.at not in {None, run.deadline_at} or run.waits_since is not None:
        return Ack()  # It was replaced, or the deadline stands still.
    return _out_of(run, handling.progress, budgets.deadline(run))


def _out_of(run: Run, progress: Progress, budget: str) -> Command:
    """End or pause a run whose budget is spent."""
    return Append([budgets.out_of(with_unfinished(run, progress), budget, progress.now)])


def _wait(run: Run, handling: Handling, paused: events.Paused) -> Command:
    """The run is paused: make sure that the timer of its end is set, and do nothing else."""
    if handling.progress.now >= paused.until:
        return Append([terminal.budget_exhausted(run, paused.budget)])
    expiry = pauses.next_expiry(run) or paused.until
    return Ack() if ("pause", expiry) in handling.progress.timers else commands.SetTimer("pause", expiry)


def _ask(run: Run, handling: Handling, asked: events.Asked, rules: Rules) -> Command:
    """Return the next command of a model call in flight. The budget of the API key is checked before each request."""
    command = _next_of_call(run, handling, asked, rules)
    asks = isinstance(command, commands.Ask | commands.AskEffort | commands.AskCritique)
    if not asks or (budget := budgets.spent_by_key(run, rules)) is None:
        return command
    if isinstance(command, commands.AskCritique) and handling.progress.decision is not None:
        return Append(decide(run, handling, asked, handling.progress.decision, rules))  # The answer is not scored.
    # It does not wait for a top-up, which raises the limits of the run only.
    return Append([terminal.budget_exhausted(run, budget)])


def _next_of_call(run: Run, handling: Handling, asked: events.Asked, rules: Rules) -> Command:
    progress, token = handling.progress, handling.incoming.attempt_token
    decision, restated = progress.decision, progress.answer_to_restate
    if asked.by != handling.incoming.owner or (asked.holder != token and progress.asked):
        return Abandon() if progress.asked else Ack()
    has_reply = decision is not None or restated is not None
    if not has_reply and run.deadline_at is not None and progress.now >= run.deadline_at:
        return _out_of(run, progress, budgets.deadline(run))
    if asked.holder != token:
        return _ask_again(run, handling, asked, "lost")
    chooses_model, triaged = awaits_triage(run, run.turn), progress.triaged
    if run.effort == "auto" or chooses_model:
        if triaged is None:
            return commands.AskEffort(asked)
        if run.effort != triaged.effort:
            model = triaged.model or (run.model if chooses_model else None)
            return Append([events.Triaged(effort=triaged.effort, model=model, usage=triaged.usage)])
    if decision is None:
        return commands.Ask(asked) if restated is None else commands.Say(asked, restated)
    if decision.restate:
        return Append([next_asked(run, handling, asked.turn, asked.attempt + 1, "restated")])
    reflects = run.started is not None and run.started.reflection is not None and progress.critique is None
    is_judged = reflects and budgets.spent(run_after(run, decision=decision), progress.now) is None
    if is_judged and isinstance(decision, Final) and decision.has_text and not decision.judged:
        return commands.AskCritique(asked, decision.args)
    return Append(decide(run, handling, asked, decision, rules))


def _ask_again(run: Run, handling: Handling, asked: events.Asked, cause: events.AskedCause) -> Command:
    """Repeat a request that never ended, and record what it has cost; or end or pause a run out of its budget."""
    progress = handling.progress
    if progress.unfinished is None:
        return commands.ReadShown()
    later = with_unfinished(run, progress)
    if cause == "lost" and run.lost >= MAX_LOST:
        reason = f"asking the model was begun {run.lost + 1} times and never came to an end"
        return Append([terminal.failed(later, Fault(code="too_many_attempts", reason=reason))])
    if (budget := budgets.spent(later, progress.now)) is not None:
        return _out_of(run, progress, budget)
    again = next_asked(run, handling, asked.turn, asked.attempt + 1, cause)
    unfinished = progress.unfinished if progress.unfinished.model_calls else None
    return Append([again.model_copy(update={"unfinished": unfinished})])


def _retry(run: Run, handling: Handling, failed: events.ModelFailed) -> Command:
    """A request has failed: make the next one when its wait is over, in whichever handling that happens."""
    if (budget := budgets.spent(run, handling.progress.now)) is not None:
        return Append([budgets.out_of(run, budget, handling.progress.now)])
    due, message = failed.retry_at, handling.incoming.message
    # A timer that has fired is not set again: NATS takes that for a repetition. Its clock may be ahead of this one.
    has_fired = isinstance(message, inbox.RunResumed) and message.at == due
    if has_fired or handling.progress.now >= due:
        return Append([next_asked(run, handling, failed.turn, failed.attempt + 1, "provider")])
    if due - handling.progress.now <= MAX_WAIT_IN_EFFECT_S * 1000:
        return commands.Wait(due)
    return Ack() if ("retry", due) in handling.progress.timers else commands.SetTimer("retry", due)


def _send(run: Run, handling: Handling) -> commands.Dispatch | Append | None:
    """Send the calls of this message that it has not sent yet, which no other message does, or take over sent ones."""
    mine = [
        call
        for call in run.open.values()
        if run.owner.get(call.call_id) == handling.incoming.owner and round_id(call) not in handling.progress.dispatched
    ]
    again = frozenset(call.call_id for call in mine if round_id(call) not in handling.progress.announced)
    return commands.Dispatch(mine, again) if mine else next_step.take_over(run, handling)


def _go_on(run: Run, handling: Handling, rules: Rules) -> Command:
    """Continue the run: what is in flight belongs to its owner; where nothing is, any message starts the next step."""
    if run.paused is not None:
        # The calls were recorded before the pause, so they are still sent: the run waits for their outcomes.
        return _send(run, handling) or _wait(run, handling, run.paused)
    if run.asked is not None:
        return _ask(run, handling, run.asked, rules)
    if run.retry is not None and not run.yields:
        return _retry(run, handling, run.retry)
    if run.open:
        waiting, free = waiting_calls(run), run.limits.max_parallel - len(run.owner)
        if (sent := _send(run, handling)) is None and waiting and free > 0 and run.step is not None:
            # Calls ended while the run was paused, or a top-up raised `max_parallel`.
            return Append([events.Called(step=run.step.step, by=handling.incoming.owner, calls=waiting[:free])])
        return sent or Ack()
    if pauses.is_held(run):
        return Ack()
    if run.interrupted is not None:
        return _ask_again(run, handling, run.interrupted, "resumed")
    if run.step is not None and not run.concluded:
        if _lacks_specs(run, handling.progress):
            return commands.LoadSpecs()
        return Append(next_step.conclude(run, handling, run.step, rules))
    return Append(next_step.go_on(run, handling, rules))
