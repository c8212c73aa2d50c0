"""The tasks of a session as the fold of their events, the bounds of their state, and what a checkpoint holds."""

from collections.abc import Iterable
from typing import Any

from contracts.sessions import tasks as facts
from contracts.sessions.records import SessionEvent, SessionRecord
from services.shared.sessions import task_fold
from services.shared.sessions.task_state import Background

A, B = "a" * 32, "b" * 32


def _folded(*events: object, background: Background | None = None, at: int = 1) -> Background:
    background = background or Background()
    for event in events:
        background = task_fold.fold(background, event, at=at)
    return background


def _spawned(task: str, group: str = A) -> facts.TaskSpawned:
    return facts.TaskSpawned(task_id=task, group_id=group, run="r", call_id="1-1", name=task[0], mode="subagent")


def _settled(number: int, digest: str = "x", tasks: int = 1, report: Any = "none") -> Iterable[object]:
    """The events of a group that is done with."""
    ids = [f"{number:016d}{each:016d}" for each in range(tasks)]
    yield facts.GroupOpened(group_id=ids[0], run="r", report=report)
    for task in ids:
        yield _spawned(task, ids[0])
    yield facts.GroupSealed(group_id=ids[0])
    for task in ids:
        yield facts.TaskEnded(task_id=task, outcome="succeeded", digest=digest)
        yield facts.ResultsMerged(group_id=ids[0], tasks=[task])
    yield facts.GroupEnded(group_id=ids[0], status="complete")


def test_replace_keeps_the_newest_result_of_a_group() -> None:
    """Results of other groups stay."""
    background = _folded(
        facts.GroupOpened(group_id=A, name="g", run="r", merge="REPLACE"),
        _spawned(A),
        _spawned(B),
        facts.TaskEnded(task_id=A, outcome="succeeded", digest="result a"),
        facts.ResultsMerged(group_id=A, tasks=[A]),
        facts.TaskEnded(task_id=B, outcome="succeeded", digest="result b"),
        facts.ResultsMerged(group_id=A, tasks=[B]),
        facts.GroupSealed(group_id=A),
        facts.GroupEnded(group_id=A, status="complete"),
    )

    assert [each.digest for each in background.results] == ["result b"]
    assert background.groups[A].status == "complete"
    assert background.open_tasks() == []


def test_a_group_stays_until_its_report_has_joined_the_session() -> None:
    """However many are settled after it."""
    report = facts.Reported(report_id=B, group_id=f"{0:032d}", kind="task", tasks=[f"{0:032d}"])
    background = _folded(*_settled(0, report="all"), report)
    for number in range(1, task_fold.MAX_SETTLED_GROUPS + 5):
        background = _folded(*_settled(number), background=background)
    assert f"{0:032d}" in background.groups
    background = task_fold.run_joined(background, B)
    for number in range(1, task_fold.MAX_SETTLED_GROUPS + 1):
        background = _folded(*_settled(1000 + number), background=background)
    assert f"{0:032d}" not in background.groups


def test_what_tasks_found_is_bounded() -> None:
    """That of settled groups goes first; then the longest are cut, and none is lost."""
    background = Background()
    for number in range(10):
        background = _folded(*_settled(number, digest="x" * 8000), background=background)
    background = _folded(facts.GroupOpened(group_id=A, name="g", run="r"), background=background)
    for number in range(200):
        task = f"{number:032x}"
        ended = facts.TaskEnded(task_id=task, outcome="succeeded", digest="short" if number == 7 else "y" * 8000)
        background = _folded(_spawned(task), ended, background=background)
    digests = [task.digest for task in background.tasks.values()]
    assert sum(len(digest.encode()) for digest in digests) <= task_fold.MAX_DIGESTS_BYTES
    waiting = [background.tasks[task].digest for task in background.groups[A].tasks]
    assert waiting[7] == "short"
    assert all(digest.startswith("y" * 400) for digest in waiting[8:])
    assert waiting[8].endswith("[…]")


def records_of(task: str, *more: SessionEvent, merge: facts.MergeStrategy = "APPEND") -> list[SessionRecord]:
    """All that a session stored about a task that has ended."""
    opened = facts.GroupOpened(group_id=task, run="r", merge=merge)
    spawned = facts.TaskSpawned(task_id=task, group_id=task, run="r", call_id="1", name=task[0], mode="subagent")
    ended = facts.TaskEnded(task_id=task, outcome="succeeded", digest=f"result {task[0]}")
    complete = facts.GroupEnded(group_id=task, status="complete")
    return [
        SessionRecord(at=1, events=[opened, spawned, facts.GroupSealed(group_id=task)]),
        SessionRecord(at=2, events=[ended, complete, *more]),
    ]


def test_a_dropped_task_is_recalled() -> None:
    """With its group and its result, and without the others."""
    records = [*records_of(A, facts.ResultsMerged(group_id=A, tasks=[A])), *records_of(B)]
    found = task_fold.recalled(Background(), records, A)
    assert list(found.tasks) == list(found.groups) == [A]
    assert (found.tasks[A].digest, found.tasks[A].is_merged, found.tasks[A].ended_at) == ("result a", True, 2)


def test_a_checkpoint_leaves_out_what_it_can_put_back() -> None:
    """Ids stand once; reading gives the same tasks."""
    background = _folded(
        facts.GroupOpened(group_id=A, name="g", run="r", report="any", report_as={"agent": "clerk"}),
        facts.TaskSpawned(task_id=A, group_id=A, run="r", call_id="1-1", mode="subagent"),
        facts.TaskSpawned(task_id=B, group_id=A, run="q", call_id="1-2", mode="job", tool="search"),
        facts.WaiterAdded(group_id=A, run="r", call_id="1-1", until=5),
        facts.TaskEnded(task_id=A, outcome="failed", code="internal"),
        at=7,
    )

    data = background.model_dump(mode="json", exclude_defaults=True)
    assert data["tasks"][A] == {"run": "r", "call_id": "1-1", "status": "failed", "ended_at": 7, "code": "internal"}
    assert "tasks" not in data["groups"][A]
    assert Background.model_validate(data) == background
    assert Background.model_validate_json(background.model_dump_json()) == background
