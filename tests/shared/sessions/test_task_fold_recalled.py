"""A task that its session has dropped, from the whole log."""

from contracts.sessions.records import SessionEvent, SessionRecord
from contracts.sessions.tasks import (
    GroupEnded,
    GroupOpened,
    GroupSealed,
    MergeStrategy,
    ResultsMerged,
    TaskEnded,
    TaskSpawned,
)
from services.shared.sessions.task_fold import recalled
from services.shared.sessions.task_state import Background

A, B = "a" * 32, "b" * 32


def records_of(task: str, *more: SessionEvent, merge: MergeStrategy = "APPEND") -> list[SessionRecord]:
    """All that a session stored about a task that has ended."""
    opened = GroupOpened(group_id=task, run="r", merge=merge)
    spawned = TaskSpawned(task_id=task, group_id=task, run="r", call_id="1", name=task[0], mode="subagent")
    ended = TaskEnded(task_id=task, outcome="succeeded", digest=f"result {task[0]}")
    complete = GroupEnded(group_id=task, status="complete")
    return [
        SessionRecord(at=1, events=[opened, spawned, GroupSealed(group_id=task)]),
        SessionRecord(at=2, events=[ended, complete, *more]),
    ]


def test_a_dropped_task_is_recalled() -> None:
    """With its group and its result, and without the others."""
    records = [*records_of(A, ResultsMerged(group_id=A, tasks=[A])), *records_of(B)]
    found = recalled(Background(), records, A)
    assert list(found.tasks) == list(found.groups) == [A]
    assert (found.tasks[A].digest, found.tasks[A].is_merged, found.tasks[A].ended_at) == ("result a", True, 2)
