"""Decides what happens to the background tasks of a session. Pure: no clock, no await, no randomness.

`receive` and `run_ended` give all events that a message leads to; none: it changes nothing, for example because it was
handled before. What may become of a group:

| what happens | open | sealed |
| --- | --- | --- |
| spawn | open, sealed | sealed |
| seal | sealed, complete, failed | sealed |
| a task ends | open | sealed, complete, failed |
| cancel | sealed, complete, failed | sealed |
| its run ends | sealed, complete, failed | sealed |
| time-out | sealed, complete, failed | sealed |
| apply, reject | open | sealed |

complete: it is sealed, all tasks have ended, and one has a result. failed: none has. Neither changes. its run: the
one that made it.

What else follows, each once:

- A task without a group is alone in a group without a name, which is sealed at once.
- APPEND and REPLACE show later runs a result when its task has succeeded. HUMAN_GATED holds the results of a group
  until it is complete, and a person applies or rejects all of them.
- A run that waits is answered when the group has ended, and was decided if it holds results; when it is cancelled; or
  when the run has waited long enough.
- Reports: `reports.due`.
- A run that was cancelled takes its open tasks with it, and nobody reports on their groups. Tasks of a run that ended
  otherwise go on.
"""

from typing import Any, assert_never

from contracts.runs.requests import RunRequested
from contracts.sessions import tasks as facts
from contracts.sessions.records import SessionRunEnded
from contracts.wire.faults import Fault
from services.planner.sessions.tasks import reports
from services.planner.sessions.tasks.reports import Target, control_id, target
from services.shared.redaction.json_values import cut, wire_size
from services.shared.sessions.fold import after
from services.shared.sessions.state import Session
from services.shared.sessions.task_fold import key_of
from services.shared.sessions.task_state import Background, Group, Task


class _Transition:
    """The events that a message leads to, so far, and the session after them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[facts.TaskEvent] = []

    @property
    def background(self) -> Background:
        return self.session.background

    def add(self, *events: facts.TaskEvent) -> None:
        self.events += events
        self.session = after(self.session, events)


def receive(session: Session, message: facts.SessionTaskMessage | facts.SessionTaskCalled) -> list[facts.TaskEvent]:
    """Return what a message about tasks leads to."""
    match message:
        case facts.SessionTaskCalled():
            return _called(session, message)
        case facts.SessionTaskControl(action=action):
            return _controlled(session, message, action, by=message.by)
        case facts.SessionGroupDue():
            return _due(session, message)
        case _:
            assert_never(message)


def _called(session: Session, call: facts.SessionTaskCalled) -> list[facts.TaskEvent]:
    match call.action:
        case "spawn":
            return spawn(session, call, call.child) if call.child is not None else []
        case "list" | "status":
            return []
        case "seal" | "cancel" | "apply" | "reject" as action:
            return _controlled(session, call, action, by="model") if session.is_open(call.run) else []
        case _:
            assert_never(call.action)


def run_ended(session: Session, message: SessionRunEnded) -> list[facts.TaskEvent]:
    """Return what the end of a run leads to: as the end of a task, and as that of the run that made groups."""
    transition, run = _Transition(session), message.ended.run
    task = session.background.tasks.get(run)
    if task is not None and task.status == "running":
        _task_ended(transition, task, message)
    groups = _groups_of(transition.background, run)
    if message.ended.outcome == "cancelled":
        # Its own groups are not reported; those of other runs are.
        for group in _groups_of(transition.background, run):
            tasks = [each for each in transition.background.tasks_of(group) if each.run == run]
            _cancel(transition, group, tasks, by="run", is_reported=group.run != run)
    for group in groups:
        if group.is_waited_for and group.waiter is not None and group.waiter.run == run:
            released = facts.WaiterReleased(
                group_id=group.group_id, run=run, call_id=group.waiter.call_id, is_answered=False
            )
            transition.add(released)
        if group.status == "open" and group.run == run:
            transition.add(facts.GroupSealed(group_id=group.group_id, by="run"))
    for group_id in dict.fromkeys([*([task.group_id] if task else []), *(group.group_id for group in groups)]):
        _follow_up(transition, group_id)
    return transition.events


def _groups_of(background: Background, run: str) -> list[Group]:
    """Return the groups that a run made, waits for, or spawned tasks of."""
    joined = {task.group_id for task in background.tasks.values() if task.run == run}
    return [group for group in background.groups.values() if group.run == run or group.group_id in joined]


def _task_ended(transition: _Transition, task: Task, message: SessionRunEnded) -> None:
    ended = message.ended
    is_partial = message.reason == "budget_exhausted" and bool(ended.answer)
    done: facts.TaskOutcome = "partial" if is_partial else "failed"
    done = "succeeded" if message.reason in {None, "answer_complete"} else done
    transition.add(
        facts.TaskEnded(
            task_id=task.task_id,
            outcome=done if ended.outcome == "done" else "cancelled" if ended.outcome == "cancelled" else "failed",
            code=ended.code or (message.reason if done != "succeeded" else None),
            digest=cut(ended.answer, facts.MAX_DIGEST_BYTES),
            spent=reports.spent_by(message, task, transition.background.groups.get(task.group_id)),
            usage=ended.usage,
        )
    )
    group = transition.background.groups.get(task.group_id)
    has_result = transition.background.tasks[task.task_id].has_result
    if group is not None and has_result and group.merge != "HUMAN_GATED":
        transition.add(facts.ResultsMerged(group_id=group.group_id, tasks=[task.task_id]))


def _controlled(
    session: Session,
    message: facts.SessionTaskCalled | facts.SessionTaskControl,
    action: facts.TaskControlAction,
    by: str,
) -> list[facts.TaskEvent]:
    request_id = control_id(message)
    if request_id in session.background.answered:
        return []
    transition = _Transition(session)
    found = target(session.background, message)
    fault = found if isinstance(found, Fault) else _carry_out(transition, found, action, by)
    if fault is not None:
        return [facts.TaskControlRefused(id=request_id, fault=fault)]
    transition.add(facts.TaskControlDone(id=request_id))
    return transition.events


def _carry_out(transition: _Transition, found: Target, action: facts.TaskControlAction, by: str) -> Fault | None:
    match action:
        case "seal":
            _seal(transition, found.group, "model" if by == "model" else "person")
            _follow_up(transition, found.group.group_id)
            return None
        case "cancel":
            return _cancelled(transition, found, by)
        case "apply" | "reject":
            return _decided(transition, found, action, by)
        case _:
            assert_never(action)


def _seal(transition: _Transition, group: Group, by: str) -> None:
    if group.status == "open":
        transition.add(facts.GroupSealed(group_id=group.group_id, by=by))


def _cancelled(transition: _Transition, found: Target, by: str) -> Fault | None:
    group, task = found.group, found.task
    if group.has_ended or (task is not None and task.status != "running"):
        return Fault(code="already_ended", reason=f"the {'task' if task is not None else 'group'} has ended")
    is_whole = task is None or not group.name
    if is_whole:
        _seal(transition, group, "model" if by == "model" else "person")
    tasks = transition.background.tasks_of(group) if task is None else [task]
    _cancel(transition, group, tasks, by, is_reported=bool(group.name))
    if is_whole:
        _release(transition, group)
    _follow_up(transition, group.group_id)
    return None


def _cancel(transition: _Transition, group: Group, tasks: list[Task], by: str, *, is_reported: bool = True) -> None:
    is_known = is_reported or group.is_muted
    ids = [task.task_id for task in tasks if task.status == "running" and not (task.is_cancelling and is_known)]
    if ids:
        transition.add(facts.TasksCancelled(tasks=ids, by=by, is_reported=is_reported))


def _decided(transition: _Transition, found: Target, action: facts.TaskControlAction, by: str) -> Fault | None:
    group = found.group
    if group.merge != "HUMAN_GATED" or group.status == "failed":
        return Fault(code="nothing_held", reason="no result of it waits for a decision")
    if not group.has_ended:
        return Fault(code="group_not_complete", reason="tasks of the group have not ended, or it is not sealed")
    if found.task is not None and group.name:
        return Fault(code="task_in_group", reason=f"the whole group is applied or rejected: {group.group_id}")
    decision = "applied" if action == "apply" else "rejected"
    if group.decision is not None:
        fault = Fault(code="already_decided", reason=f"the results were {group.decision} before")
        return None if group.decision == decision else fault
    if action == "reject":
        transition.add(facts.ResultsRejected(group_id=group.group_id, by=by))
    else:
        tasks = [task.task_id for task in transition.background.tasks_of(group) if task.has_result]
        transition.add(facts.ResultsMerged(group_id=group.group_id, tasks=tasks, by=by))
    _follow_up(transition, group.group_id)
    return None


def _due(session: Session, message: facts.SessionGroupDue) -> list[facts.TaskEvent]:
    transition, group = _Transition(session), session.background.groups.get(message.group_id)
    if group is None:
        return []
    if message.what == "waiter":
        _release(transition, group, timed_out=True)
    elif not group.has_ended:
        _seal(transition, group, "timer")
        _cancel(transition, group, transition.background.tasks_of(group), by="timer")
    _follow_up(transition, group.group_id)
    return transition.events


def _release(transition: _Transition, group: Group, *, timed_out: bool = False) -> None:
    waiter = group.waiter
    if waiter is not None and waiter.state == "waiting":
        transition.add(
            facts.WaiterReleased(group_id=group.group_id, run=waiter.run, call_id=waiter.call_id, timed_out=timed_out)
        )


def _follow_up(transition: _Transition, group_id: str) -> None:
    """Add what follows for a group from its tasks: its end, the answer of the run that waits, and reports."""
    group = transition.background.groups.get(group_id)
    if group is None:
        return
    tasks = transition.background.tasks_of(group)
    if group.status == "sealed" and all(task.status != "running" for task in tasks):
        has_result = any(task.has_result for task in tasks)
        status = "complete" if has_result else "failed"
        holds = has_result and group.merge == "HUMAN_GATED"
        transition.add(facts.GroupEnded(group_id=group_id, status=status, awaits_decision=holds))
        group = transition.background.groups[group_id]
    if group.has_ended and not group.awaits_decision:
        _release(transition, group)
        group = transition.background.groups[group_id]
    transition.add(*reports.due(transition.session, group))


MAX_UNSETTLED_TASKS = 1000
"""Tasks of a session that have not ended, or whose group waits for its end, a decision or its report."""
MAX_SPAWNED = 2000
"""Tasks that all open runs of a session have spawned."""
MAX_REPORT_AS_BYTES = 64 * 1024
"""What a session keeps for requests of reports, as JSON. It is large where requests name many tools."""
MAX_TEXTS_BYTES = 64 * 1024
"""Names and queries of all tasks of a session, as JSON; further ones are left out."""
GATED: facts.MergeStrategy = "HUMAN_GATED"
MAX_NAME_BYTES, MAX_QUERY_BYTES = 64, 200


def spawn(session: Session, call: facts.SessionTaskCalled, child: RunRequested) -> list[facts.TaskEvent]:
    """Return what the call for a task leads to; none: it was handled before, or its run is not open."""
    background = session.background
    known = background.has_spawned(call.run, child.run_id) or child.run_id in background.answered
    if known or session.is_deleting or not session.is_open(call.run):
        return []
    group = _beyond_limits(background, call, child) or _joined(background, call)
    if isinstance(group, Fault):
        return [facts.SpawnRefused(task_id=child.run_id, run=call.run, fault=group)]
    opened: list[facts.TaskEvent] = [] if group is not None else [_opened(call, child)]
    group_id = group.group_id if group is not None else child.run_id
    found = [*opened, _spawned(background, call, child, group_id)]
    args, keeps_turn = call.args, bool(call.args.get("retain_turn"))
    if keeps_turn or args.get("group_sealed") or not (args.get("group") or args.get("group_id")):
        found.append(facts.GroupSealed(group_id=group_id, by="spawn"))
    if keeps_turn:
        until = call.at + round(call.policy.retain_timeout_s * 1000)
        found.append(facts.WaiterAdded(group_id=group_id, run=call.run, call_id=call.call_id, until=until))
    return found


def _beyond_limits(background: Background, call: facts.SessionTaskCalled, child: RunRequested) -> Fault | None:
    policy = call.policy
    if child.depth > policy.max_depth:
        return Fault(code="too_deep", reason=f"a run that is {policy.max_depth} runs deep may not spawn tasks")
    if child.hops >= policy.max_hops:
        return Fault(code="too_many_hops", reason=f"reports in a row: at most {policy.max_hops}")
    if len(background.open_tasks()) >= policy.max_open:
        return Fault(code="too_many_tasks", reason=f"open tasks of the session: at most {policy.max_open}")
    if len(background.spawned.get(call.run, [])) >= policy.max_per_run:
        return Fault(code="too_many_tasks", reason=f"tasks of one run: at most {policy.max_per_run}")
    if len(background.tasks) - sum(len(group.tasks) for group in background.settled_groups()) >= MAX_UNSETTLED_TASKS:
        return Fault(code="too_many_tasks", reason=f"tasks without a report or decision: at most {MAX_UNSETTLED_TASKS}")
    if sum(map(len, background.spawned.values())) >= MAX_SPAWNED:
        return Fault(code="too_many_tasks", reason=f"tasks of the session's open runs: at most {MAX_SPAWNED}")
    fields = reports.report_as(call, child)
    if wire_size({**background.report_as, key_of(fields): fields}) > MAX_REPORT_AS_BYTES:
        return Fault(code="too_many_tasks", reason="the requests of the reports would be too large: name fewer tools")
    return None


def _joined(background: Background, call: facts.SessionTaskCalled) -> Group | Fault | None:
    """Return the group that the task joins; None: it makes one."""
    group_id, name = call.args.get("group_id"), call.args.get("group")
    if group_id:
        group = background.groups.get(str(group_id))
        if group is None or not group.name:
            return Fault(code="group_not_found", reason="there is no such group")
        if group.status != "open":
            return Fault(code="group_not_joinable", reason=f"the group is {group.status}: no task may join it")
        if call.policy.merge_strategy == GATED != group.merge:
            return Fault(
                code="group_not_joinable", reason="results of this agent's tasks wait for a person, its do not"
            )
        return group
    same = (
        group
        for group in background.groups.values()
        if name and group.name == group_name(name) and group.run == call.run and group.status == "open"
    )
    return next(same, None)


def group_name(name: Any) -> str:
    """Return the name of a group as it is kept."""
    return cut(str(name).strip(), MAX_NAME_BYTES)


def _opened(call: facts.SessionTaskCalled, child: RunRequested) -> facts.GroupOpened:
    args, policy = call.args, call.policy
    name = group_name(args.get("group") or "")
    chosen = args.get("merge_strategy") or policy.merge_strategy
    chosen = (args.get("group_merge_strategy") or chosen) if name else chosen
    return facts.GroupOpened(
        group_id=child.run_id,
        name=name,
        run=call.run,
        report=args.get("group_report") or policy.group_report,
        # A model may gate what the agent does not, never the other way round.
        merge=GATED if policy.merge_strategy == GATED else chosen,
        timeout_at=call.at + round(policy.group_timeout_s * 1000),
        report_as=reports.report_as(call, child),
    )


def _spawned(
    background: Background, call: facts.SessionTaskCalled, child: RunRequested, group_id: str
) -> facts.TaskSpawned:
    name = cut(str(call.args.get("name") or ""), MAX_NAME_BYTES)
    query = cut(child.query, MAX_QUERY_BYTES) if child.job is None else ""
    texts = [text for task in background.tasks.values() for text in (task.name, task.query)]
    fits = wire_size([*texts, name, query]) <= MAX_TEXTS_BYTES
    return facts.TaskSpawned(
        task_id=child.run_id,
        group_id=group_id,
        run=call.run,
        call_id=call.call_id,
        name=name if fits else "",
        mode="subagent" if child.job is None else "job",
        tool=child.job.tool if child.job is not None else None,
        query=query if fits else "",
        depth=child.depth,
        for_report=call.for_report,
        requested_at=child.requested_at,
    )
