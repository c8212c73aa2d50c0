"""The tasks of a session as the fold of their events."""

from contracts.tasks import GroupEnded, GroupOpened, GroupSealed, ResultsMerged, TaskEnded, TaskSpawned
from services.shared.session_tasks.fold import fold
from services.shared.session_tasks.state import Background

A, B = "a" * 32, "b" * 32


def _folded(*events: object) -> Background:
    background = Background()
    for event in events:
        background = fold(background, event, at=1)
    return background


def _spawned(task: str) -> TaskSpawned:
    return TaskSpawned(task_id=task, group_id=A, run="r", call_id="1-1", name=task[0], mode="subagent")


def test_replace_keeps_the_newest_result_of_a_group() -> None:
    """A later result takes the place of an earlier one."""
    background = _folded(
        GroupOpened(group_id=A, name="g", run="r", merge="REPLACE"),
        _spawned(A),
        _spawned(B),
        TaskEnded(task_id=A, outcome="succeeded", digest="result a"),
        ResultsMerged(group_id=A, tasks=[A]),
        TaskEnded(task_id=B, outcome="succeeded", digest="result b"),
        ResultsMerged(group_id=A, tasks=[B]),
        GroupSealed(group_id=A),
        GroupEnded(group_id=A, status="complete"),
    )

    assert [each.digest for each in background.results] == ["result b"]
    assert background.groups[A].status == "complete"
    assert background.open_tasks() == []
