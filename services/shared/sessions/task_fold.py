"""Folds the events about a session's background tasks. Pure: no clock, no await.

The state is bounded, since each checkpoint of the session is one message:

- settled groups, of which nobody waits for anything: the newest 100, or fewer if they have more than 300 tasks;
- what tasks found: 128 KiB together. That of settled groups is dropped first, then the longest ones are cut. The whole
  is in the payload of the task's run;
- results that later runs are shown: the newest 50, and at most 64 KiB.

What is not settled is bounded where tasks are spawned (`services.planner.sessions.tasks.machine`).
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from contracts.sessions import tasks as events
from contracts.sessions.records import SessionEvent, SessionRecord
from contracts.wire.faults import Fault
from services.shared.redaction.json_values import cut_together, json_size
from services.shared.sessions.task_state import SPAWNED_DIGITS, Background, Group, Report, Result, Task, Waiter

MAX_SETTLED_GROUPS, MAX_SETTLED_TASKS = 100, 300
MAX_DIGESTS_BYTES = 128 * 1024
"""As JSON."""
MAX_RESULTS, MAX_RESULTS_BYTES = 50, 64 * 1024
MAX_ANSWERED = 200
"""Requests whose repetition is known, so that it changes nothing and gets the same answer."""


def fold(background: Background, event: Any, at: int) -> Background:
    """Return the tasks after an event. `at`: time of its record, Unix ms."""
    take = _FOLDS.get(event.type)
    return background if take is None else take(background, event, at)


def run_joined(background: Background, run: str) -> Background:
    """Return the tasks after the run of a report has joined the session, or was refused."""
    joined = next((report for report in background.reports if report.report_id == run), None)
    if joined is None:
        return background
    reports = [report for report in background.reports if report is not joined]
    return _settling(_with(background, reports=reports), joined.group_id)


def run_ended(background: Background, run: str) -> Background:
    """Return the tasks after the end of a run that may have spawned some."""
    if run not in background.spawned:
        return background
    return _with(background, spawned={key: ids for key, ids in background.spawned.items() if key != run})


def run_waits(background: Background, task_id: str, seq: int) -> Background:
    """Return the tasks after a message about the pauses of a task's run. `seq`: of the run's record."""
    return _with_tasks(background, [task_id], waits_seq=seq)


def forgotten(background: Background, runs: AbstractSet[str]) -> Background:
    """Return the tasks without what was asked of, or found by, some of them: their runs were deleted."""
    results = [result for result in background.results if result.task_id not in runs]
    return _with_tasks(_with(background, results=results), sorted(runs), query="", digest="")


def key_of(report_as: dict[str, Any]) -> str:
    """Return the key of `Background.report_as` for such fields."""
    return hashlib.sha256(json.dumps(report_as, sort_keys=True).encode()).hexdigest()[:16]


def _with(background: Background, **changes: object) -> Background:
    return background.model_copy(update=changes)


def _with_group(background: Background, group_id: str, **changes: object) -> Background:
    group = background.groups.get(group_id)
    if group is None:
        return background
    return _with(background, groups={**background.groups, group_id: group.model_copy(update=changes)})


def _with_tasks(background: Background, task_ids: list[str], **changes: object) -> Background:
    known = [background.tasks[task_id] for task_id in task_ids if task_id in background.tasks]
    changed = {task.task_id: task.model_copy(update=changes) for task in known}
    return _with(background, tasks={**background.tasks, **changed})


def _opened(background: Background, event: events.GroupOpened, _at: int) -> Background:
    key = key_of(event.report_as)
    fields = event.model_dump(include=set(Group.model_fields) - {"report_as"})
    group = Group(**fields, report_as=key)
    return _with(
        background,
        groups={**background.groups, group.group_id: group},
        report_as={**background.report_as, key: event.report_as},
    )


def _spawned(background: Background, event: events.TaskSpawned, _at: int) -> Background:
    task = Task.model_validate(event.model_dump(include=set(Task.model_fields)))
    ids = [*background.spawned.get(task.run, []), task.task_id[:SPAWNED_DIGITS]]
    background = _with(
        background, tasks={**background.tasks, task.task_id: task}, spawned={**background.spawned, task.run: ids}
    )
    group = background.groups.get(task.group_id)
    return background if group is None else _with_group(background, task.group_id, tasks=[*group.tasks, task.task_id])


def _waiter_released(background: Background, event: events.WaiterReleased, _at: int) -> Background:
    group = background.groups.get(event.group_id)
    if group is None or group.waiter is None:
        return background
    state = "timed_out" if event.timed_out else "answered" if event.is_answered else "run_ended"
    waiter = group.waiter.model_copy(update={"state": state})
    return _settling(background, event.group_id, waiter=waiter)


def _answered(background: Background, request_id: str, fault: Fault | None) -> Background:
    answered = [*background.answered.items(), (request_id, fault)]
    return _with(background, answered=dict(answered[-MAX_ANSWERED:]))


def _task_ended(background: Background, event: events.TaskEnded, at: int) -> Background:
    changes: dict[str, object] = {
        "status": event.outcome,
        "ended_at": at,
        "code": event.code,
        "digest": event.digest,
        "is_cancelling": False,
        "waits_seq": 0,
    }
    background = _with_tasks(background, [event.task_id], **changes)
    return _with_digests_cut(run_ended(background, event.task_id))


def _cancelled(background: Background, event: events.TasksCancelled, _at: int) -> Background:
    background = _with_tasks(background, event.tasks, is_cancelling=True)
    if event.is_reported:
        return background
    for group_id in {background.tasks[task_id].group_id for task_id in event.tasks if task_id in background.tasks}:
        background = _with_group(background, group_id, is_muted=True)
    return background


def _merged(background: Background, event: events.ResultsMerged, _at: int) -> Background:
    group = background.groups.get(event.group_id)
    if group is None:
        return background
    slot = "" if group.merge != "REPLACE" else f"group {group.group_id}" if group.name else "ungrouped"
    results = background.results
    for task_id in event.tasks:
        task = background.tasks.get(task_id)
        if task is not None:
            kept = [each for each in results if not slot or each.slot != slot]
            fields = task.model_dump(include={"task_id", "group_id", "name", "status", "digest"})
            result = Result(**fields, slot=slot)
            results = [*kept, result]
    background = _with(_with_tasks(background, event.tasks, is_merged=True), results=_newest(results))
    decision = {"decision": "applied"} if group.merge == "HUMAN_GATED" else {}
    return _settling(background, event.group_id, **decision)


def _newest(results: list[Result]) -> list[Result]:
    kept, total = 0, 0
    for each in reversed(results[-MAX_RESULTS:]):
        total += json_size(each.digest) + json_size(each.name)
        if total > MAX_RESULTS_BYTES:
            break
        kept += 1
    return results[len(results) - kept :]


def _reported(background: Background, event: events.Reported, at: int) -> Background:
    named = [*event.tasks, *event.failed]
    background = _with_group(background, event.group_id, report_id=event.report_id)
    report = Report(report_id=event.report_id, group_id=event.group_id, tasks=named, at=at)
    return _with(_with_tasks(background, named, is_reported=True), reports=[*background.reports, report])


def _settling(background: Background, group_id: str, **changes: object) -> Background:
    """Change a group, which then comes last, and drop the first settled ones beyond the limits. It is never dropped."""
    group = background.groups.get(group_id)
    if group is None:
        return background
    others = {key: each for key, each in background.groups.items() if key != group_id}
    background = _with(background, groups={**others, group_id: group.model_copy(update=changes)})
    settled = background.settled_groups()
    kept, tasks = 0, 0
    for group in reversed(settled[-MAX_SETTLED_GROUPS:]):
        tasks += len(group.tasks)
        if kept and tasks > MAX_SETTLED_TASKS:
            break
        kept += 1
    dropped = {group.group_id for group in settled[: len(settled) - kept]}
    if not dropped:
        return background
    groups = {key: group for key, group in background.groups.items() if key not in dropped}
    used = {group.report_as for group in groups.values()}
    return _with(
        background,
        groups=groups,
        tasks={key: task for key, task in background.tasks.items() if task.group_id not in dropped},
        report_as={key: fields for key, fields in background.report_as.items() if key in used},
    )


def _with_digests_cut(background: Background) -> Background:
    """Keep what tasks found within its limit."""
    sizes = {key: json_size(task.digest) for key, task in background.tasks.items() if task.digest}
    excess = sum(sizes.values()) - MAX_DIGESTS_BYTES
    if excess <= 0:
        return background
    settled = {group.group_id for group in background.settled_groups()}
    dropped: list[str] = []
    for key, size in sizes.items():
        group_id = background.tasks[key].group_id
        if excess > 0 and (group_id not in background.groups or group_id in settled):
            dropped.append(key)
            excess -= size
    background = _with_tasks(background, dropped, digest="")
    if excess <= 0:
        return background
    waiting = {key: task.digest for key, task in background.tasks.items() if task.digest}
    # They are cut to less than the limit, so that the next result does not cut all of them again.
    cut_ones = {
        key: background.tasks[key].model_copy(update={"digest": digest})
        for key, digest in cut_together(waiting, MAX_DIGESTS_BYTES * 3 // 4).items()
        if digest != waiting[key]
    }
    return _with(background, tasks={**background.tasks, **cut_ones})


def recalled(background: Background, records: Sequence[SessionRecord], task_id: str) -> Background:
    """Return the tasks with one of them as the whole log has it; the same tasks if the log does not know it.

    `records`: all of the session. If the group was dropped too, it is returned with this one task.
    """
    recorded = [(event, record.at) for record in records for event in record.events]
    spawned = [event for event, _ in recorded if isinstance(event, events.TaskSpawned) and event.task_id == task_id]
    if not spawned:
        return background
    found = Background()
    for event, at in recorded:
        if _is_about(event, spawned[0]):
            found = fold(found, event, at)
    changes = {"tasks": {**background.tasks, **found.tasks}, "groups": {**found.groups, **background.groups}}
    return background.model_copy(update=changes)


def _is_about(event: SessionEvent, spawned: events.TaskSpawned) -> bool:
    match event:
        case events.TaskSpawned(task_id=task_id) | events.TaskEnded(task_id=task_id):
            return task_id == spawned.task_id
        case events.ResultsMerged(tasks=tasks):
            return spawned.task_id in tasks
        case events.GroupOpened() | events.GroupSealed() | events.GroupEnded() | events.ResultsRejected():
            return event.group_id == spawned.group_id
        case _:
            return False


_FOLDS: dict[str, Callable[[Background, Any, int], Background]] = {
    "group_opened": _opened,
    "task_spawned": _spawned,
    "waiter_added": lambda background, event, _at: _with_group(
        background, event.group_id, waiter=Waiter(run=event.run, call_id=event.call_id, until=event.until)
    ),
    "waiter_released": _waiter_released,
    "spawn_refused": lambda background, event, _at: _answered(background, event.task_id, event.fault),
    "group_sealed": lambda background, event, _at: _with_group(background, event.group_id, status="sealed"),
    "task_ended": _task_ended,
    "tasks_cancelled": _cancelled,
    "group_ended": lambda background, event, _at: _settling(background, event.group_id, status=event.status),
    "results_merged": _merged,
    "results_rejected": lambda background, event, _at: _settling(background, event.group_id, decision="rejected"),
    "reported": _reported,
    "task_control_done": lambda background, event, _at: _answered(background, event.id, None),
    "task_control_refused": lambda background, event, _at: _answered(background, event.id, event.fault),
}
