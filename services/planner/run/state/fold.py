"""Folds the log of a run: each record changes the `Run`. Pure: no clock, no await, no randomness."""

from collections.abc import Callable, Iterable
from dataclasses import fields

from contracts.runs import events
from contracts.runs.decisions import TASK
from contracts.runs.pauses import text_pause_id
from contracts.runs.payload import FinalPayload
from contracts.sessions.proposals import PayloadKept
from services.planner.run.state import history
from services.planner.run.state.history import allowed_images
from services.planner.run.state.people import called_again
from services.planner.run.state.run import Run, StrategyState, take_in, waiting_calls
from services.planner.run.state.task_budgets import with_settled
from services.shared.budgets.totals import spent


class StrategyFold:
    """The part of a strategy in the fold of its runs. These defaults are of a strategy without a state of its own."""

    def fold(self, run: Run, event: events.RunEvent) -> StrategyState:
        """Return the strategy's state after an event, which the run has taken in already. Changes nothing itself."""
        del event
        return run.strategy_state

    def view(self, run: Run, step: events.Step) -> history.Item | None:
        """Return what a step adds to the conversation with the model, as it begins or ends; None: nothing."""
        if step.status == "started":
            return history.Decided(step) if step.calls or step.answer is not None else None
        if step.status not in NOT_BEGUN and run.observed and run.step is not None:
            return history.Outcomes(run.step, tuple(run.observed.values()), step.note)
        return None


StrategyOf = Callable[[events.RunStarted], StrategyFold]
"""Chooses the strategy of a run by the fact that opens it."""
BY_SESSION = "session"
NOT_BEGUN = frozenset({"skipped", "invalid"})
"""How a step ends that has no `started` event."""
_WITHOUT_STATE = StrategyFold()


def fold(
    run: Run, seq: int, at: int, happened: Iterable[events.RunEvent], strategy_of: StrategyOf = lambda _: _WITHOUT_STATE
) -> None:
    """Apply one record: its sequence, its writer's time (Unix ms) and its events. An unknown event changes nothing.

    `strategy_of`: without it the run is folded as one of a strategy without a state of its own.
    """
    run.seq = seq
    waited, had = (run.waits_since is not None, run.waits_for_tasks), [*run.pauses.values(), *run.of_tasks.values()]
    for event in happened:
        _take(run, event, at)
        if run.started is not None:
            strategy = strategy_of(run.started)
            if isinstance(event, events.Step) and (item := strategy.view(run, event)) is not None:
                run.history.add(item)
                if event.status != "started" and event.status not in NOT_BEGUN:
                    # The model is shown the images in the results of the step, as far as the run's policy allows it.
                    policy = run.started.vision_context
                    if images := allowed_images(policy, run.observed.values(), run.tool_images):
                        run.tool_images += images
                        run.history.add(history.ImagesShown(tuple(images)))
            run.strategy_state = strategy.fold(run, event)
    if had or run.pauses or run.of_tasks:
        works = run.asked or run.retry or waiting_calls(run)
        waits = run.yields or (bool(run.pauses) and not (works or run.owner))
        run.waits_since = (run.waits_since or at) if waits else None
        run.waits_for_tasks = bool(run.paused_by_tasks) and not works and run.owner.keys() <= run.paused_by_tasks
        is_same = waited == (waits, run.waits_for_tasks)
        if had != [*run.pauses.values(), *run.of_tasks.values()] or not is_same:
            run.waits_seq = run.seq


def _take(run: Run, event: events.RunEvent, at: int) -> None:  # noqa: C901, PLR0912, one case for each event
    """Apply an event. All others are for listeners only."""
    match event:
        case events.RunStarted():
            _fold_started(run, event, at)
        case events.Triaged():
            run.effort, run.model = event.effort, event.model or run.model
            run.calling = run.model
            if run.asked is not None:
                run.asked = run.asked.model_copy(update={"model": run.model})
            run.usage = spent(run.usage, event.usage)
        case events.Asked():
            _fold_asked(run, event, at)
        case events.Step(status="started"):
            _fold_begun(run, event, at)
        case events.Step():
            run.concluded = True
            run.deadline_at = event.deadline_at or run.deadline_at
            if event.status in NOT_BEGUN:
                run.asked = None
                run.usage = spent(run.usage, event.usage)
            if event.status not in NOT_BEGUN or event.errors:  # The end that follows any other has its warnings.
                run.warnings += event.warnings
        case events.Called():
            _fold_called(run, event, at)
        case events.Observed():
            run.open.pop(event.call_id, None)
            run.owner.pop(event.call_id, None)
            run.of_tasks.pop(event.call_id, None)
            run.observed[event.call_id] = event
            if event.status == "failed":
                run.set_aside.pop(event.call_id, None)  # The task was not spawned.
            take_in(run, event)
        case events.TaskSettled():
            if (reserved := run.set_aside.pop(event.call_id, None)) is not None:
                run.spent_by_tasks = with_settled(run.spent_by_tasks, reserved, event.spent)
        case events.ModelFailed():
            if event.usage is not None:
                run.usage = spent(run.usage, event.usage)
            run.failed.append(event)
            run.calling, run.asked, run.retry = event.next_model, None, event
        case events.Repaired():
            _fold_repaired(run, event)
        case events.Compacted():
            run.history.add(history.Compaction(event.line_characters, newest=event.cause == "overflow"))
            run.compactions += event.cause == "overflow"
        case _:
            _take_control(run, event, at)


def _take_control(run: Run, event: events.RunEvent, at: int) -> None:  # noqa: C901, PLR0912, one case for each event
    """Apply an event of the session, people and budgets around a run, or its end."""
    match event:
        case events.TasksPaused():
            run.of_tasks[event.call_id] = event
            own = run.started.run_id if run.started is not None else ""
            run.pause_decisions.of_tasks.update(each.pause_id for each in event.pauses if each.run_id == own)
        case events.Yielded():
            run.turn_news_seq, run.yields, run.waits_since = event.seq, True, run.waits_since or at
            if run.asked is not None:
                run.interrupted, run.asked = run.asked, None
        case events.Redelivered():
            run.last_handling[event.by] = event.holder
        case events.Queued():
            run.queued = event
        case events.Attached():
            run.attached = event.session_id
        case events.Paused():
            _fold_paused(run, event)
        case events.Resumed():
            _fold_resumed(run, event, at)
        case events.ToppedUp():
            run.limits, run.deadline_at = event.limits, event.deadline_at
            run.topped_up_by.add(event.by)
            run.waits_since = None  # The deadline counts from now.
        case events.InputAdded():
            run.inputs.add(event)
            if event.redirect:
                if run.asked is not None:
                    run.interrupted, run.asked = run.asked, None
                run.final_args = run.judged = None
                run.rejected.clear()
        case events.PayloadProposed():
            run.payloads.append(PayloadKept.model_validate(event, from_attributes=True))
        case events.Stopping():
            run.stopping, run.asked, run.retry = event, None, None
        case events.Done() | events.Error() | events.Cancelled():
            run.usage = event.usage
            _fold_terminal(run, event, at)
        case events.Deleted():
            # `started` goes, so that no planner that still has the run in its cache writes its index entry again.
            run.started = run.queued = None
            empty = events.Cancelled(reason="deleted", payload=FinalPayload(raw_answer=""))
            _fold_terminal(run, run.terminal or empty, at)


def _fold_started(run: Run, started: events.RunStarted, at: int) -> None:
    if run.started is not None or run.terminal is not None:
        # The log of an earlier run with this id, as of a repeated idempotency key, was purged.
        new = Run(seq=run.seq)
        for each in fields(Run):
            setattr(run, each.name, getattr(new, each.name))
    run.started_at = at
    run.started, run.effort, run.model = started, started.effort, started.model
    run.limits, run.deadline_at = started.limits, started.deadline_at
    run.yields, run.waits_since = False, None  # It may have yielded before.
    run.warnings += started.warnings
    run.collected.take_tasks(started.request.of_tasks)
    run.history.add(history.Question(started.request, tuple(started.images)))


def _fold_asked(run: Run, asked: events.Asked, at: int) -> None:
    run.last_handling[asked.by] = asked.holder
    if asked.turn != run.turn:
        run.turn_seq, run.turn_at = run.seq, at
        run.lost = run.repairs = run.compactions = 0
        run.rejected.clear()
    elif asked.cause == "lost":
        run.lost += 1
    if asked.cause != "provider":
        run.call_at = at
        if asked.cause != "lost":
            run.failed.clear()
    run.turn, run.asked, run.interrupted, run.retry = asked.turn, asked, None, None
    run.calling = asked.model or run.model
    run.usage = spent(run.usage, asked.unfinished) if asked.unfinished is not None else run.usage
    if asked.cause != "restated":  # A restated answer is shown again, without a request to the model.
        run_id = run.started.run_id if run.started is not None else ""
        # A person has yet to admit a text that a rule holds.
        for added in run.inputs.take_unread(lambda added: text_pause_id(run_id, added.id) in run.pauses):
            run.history.add(added)


def _fold_begun(run: Run, step: events.Step, at: int) -> None:
    run.asked, run.step, run.step_at, run.joined = None, step, at, False
    run.observed, run.final_args, run.concluded = {}, None, not step.calls
    run.rejected.clear()
    run.open = {call.call_id: call for call in step.calls}
    run.owner = {call.call_id: step.by or "" for call in step.calls[: run.limits.max_parallel]}
    run.announced_at = dict.fromkeys(run.owner, at)
    run.collected.expect(step.calls)
    run.usage = spent(run.usage, step.usage, tool_calls=len(step.calls))
    run.warnings += step.warnings
    if step.node == TASK:
        run.set_aside |= {call.call_id: call.set_aside for call in step.calls if call.set_aside is not None}


def _fold_called(run: Run, called: events.Called, at: int) -> None:
    fresh = [call for call in called.calls if call.call_id not in run.open]  # Others were counted with their step.
    run.usage = spent(run.usage, None, tool_calls=len(fresh))
    for call in called.calls:
        run.open[call.call_id] = call
        run.owner[call.call_id], run.announced_at[call.call_id] = called.by, at
    run.collected.expect(called.calls)
    run.joined = run.joined or called.join


def _fold_repaired(run: Run, repaired: events.Repaired) -> None:
    run.usage = spent(run.usage, repaired.usage, repairs=1)
    run.rejected.append(repaired)
    if repaired.kind == "answer":
        run.final_args = repaired.args or {}
    elif repaired.kind == "revision":
        run.revisions += 1
        run.judged = repaired.args or run.judged
    else:
        run.repairs += 1


def _fold_paused(run: Run, paused: events.Paused) -> None:
    if paused.pause_id is not None:
        run.pauses[paused.pause_id] = paused
        run.owner.pop(paused.call_id or "", None)
        run.pause_decisions.take_pause(paused)
        return
    if run.asked is not None:
        run.interrupted, run.asked = run.asked, None
    run.paused = paused


def _fold_resumed(run: Run, resumed: events.Resumed, at: int) -> None:
    run.call_at = at
    if resumed.deadline_at is not None:
        run.deadline_at, run.waits_since = resumed.deadline_at, None
    if resumed.pause_id is None:
        if resumed.by == BY_SESSION:
            run.waits_since = None if run.yields else run.waits_since
            run.yields, run.turn_news_seq = False, resumed.session_seq or run.turn_news_seq
        else:
            run.paused = None
        return
    if (paused := run.pauses.pop(resumed.pause_id, None)) is not None:
        run.pause_decisions.take_decision(paused, resumed)
        if (call := run.open.get(paused.call_id or "")) is not None:
            run.open[call.call_id] = called_again(call, paused, resumed)
    elif (held := run.held_results(resumed.pause_id)) is not None:
        run.pause_decisions.take_results(held, resumed)


def _fold_terminal(run: Run, terminal: events.Done | events.Error | events.Cancelled, at: int) -> None:
    run.terminal, run.ended_at, run.asked, run.retry, run.paused = terminal, at, None, None, None
    run.pauses.clear()
    run.of_tasks.clear()
    run.history = history.History()
