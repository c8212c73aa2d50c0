"""Spawns a task: the limits, and the group that it joins or makes. Pure.

A task without a group is alone in a group without a name, which is sealed at once.
"""

from typing import Any

from contracts.runs.requests import RunRequested
from contracts.sessions.tasks import (
    GroupOpened,
    GroupSealed,
    MergeStrategy,
    SessionTaskCalled,
    SpawnRefused,
    TaskEvent,
    TaskSpawned,
    WaiterAdded,
)
from contracts.wire.faults import Fault
from services.planner.sessions.tasks import reports
from services.shared.redaction.json_values import cut, wire_size
from services.shared.sessions.state import Session
from services.shared.sessions.task_fold import key_of
from services.shared.sessions.task_state import Background, Group

MAX_UNSETTLED_TASKS = 1000
"""Tasks of a session that have not ended, or whose group waits for its end, a decision or its report."""
MAX_SPAWNED = 2000
"""Tasks that all open runs of a session have spawned."""
MAX_REPORT_AS_BYTES = 64 * 1024
"""What a session keeps for requests of reports, as JSON. It is large where requests name many tools."""
MAX_TEXTS_BYTES = 64 * 1024
"""Names and queries of all tasks of a session, as JSON; further ones are left out."""
GATED: MergeStrategy = "HUMAN_GATED"
MAX_NAME_BYTES, MAX_QUERY_BYTES = 64, 200


def spawn(session: Session, call: SessionTaskCalled, child: RunRequested) -> list[TaskEvent]:
    """Return what the call for a task leads to; none: it was handled before, or its run is not open."""
    background = session.background
    known = background.has_spawned(call.run, child.run_id) or child.run_id in background.answered
    if known or session.is_deleting or not session.is_open(call.run):
        return []
    group = _beyond_limits(background, call, child) or _joined(background, call)
    if isinstance(group, Fault):
        return [SpawnRefused(task_id=child.run_id, run=call.run, fault=group)]
    opened: list[TaskEvent] = [] if group is not None else [_opened(call, child)]
    group_id = group.group_id if group is not None else child.run_id
    facts = [*opened, _spawned(background, call, child, group_id)]
    args, keeps_turn = call.args, bool(call.args.get("retain_turn"))
    if keeps_turn or args.get("group_sealed") or not (args.get("group") or args.get("group_id")):
        facts.append(GroupSealed(group_id=group_id, by="spawn"))
    if keeps_turn:
        until = call.at + round(call.policy.retain_timeout_s * 1000)
        facts.append(WaiterAdded(group_id=group_id, run=call.run, call_id=call.call_id, until=until))
    return facts


def _beyond_limits(background: Background, call: SessionTaskCalled, child: RunRequested) -> Fault | None:
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


def _joined(background: Background, call: SessionTaskCalled) -> Group | Fault | None:
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


def _opened(call: SessionTaskCalled, child: RunRequested) -> GroupOpened:
    args, policy = call.args, call.policy
    name = group_name(args.get("group") or "")
    chosen = args.get("merge_strategy") or policy.merge_strategy
    chosen = (args.get("group_merge_strategy") or chosen) if name else chosen
    return GroupOpened(
        group_id=child.run_id,
        name=name,
        run=call.run,
        report=args.get("group_report") or policy.group_report,
        # A model may gate what the agent does not, never the other way round.
        merge=GATED if policy.merge_strategy == GATED else chosen,
        timeout_at=call.at + round(policy.group_timeout_s * 1000),
        report_as=reports.report_as(call, child),
    )


def _spawned(background: Background, call: SessionTaskCalled, child: RunRequested, group_id: str) -> TaskSpawned:
    name = cut(str(call.args.get("name") or ""), MAX_NAME_BYTES)
    query = cut(child.query, MAX_QUERY_BYTES) if child.job is None else ""
    texts = [text for task in background.tasks.values() for text in (task.name, task.query)]
    fits = wire_size([*texts, name, query]) <= MAX_TEXTS_BYTES
    return TaskSpawned(
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
