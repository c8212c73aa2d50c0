"""The tasks of a session as part of a checkpoint."""

from contracts.sessions.tasks import GroupOpened, TaskEnded, TaskSpawned, WaiterAdded
from services.shared.sessions.task_fold import fold
from services.shared.sessions.task_state import Background

A, B = "a" * 32, "b" * 32


def test_a_checkpoint_leaves_out_what_it_can_put_back() -> None:
    """Ids stand once; reading gives the same tasks."""
    background = Background()
    for event in (
        GroupOpened(group_id=A, name="g", run="r", report="any", report_as={"agent": "clerk"}),
        TaskSpawned(task_id=A, group_id=A, run="r", call_id="1-1", mode="subagent"),
        TaskSpawned(task_id=B, group_id=A, run="q", call_id="1-2", mode="job", tool="search"),
        WaiterAdded(group_id=A, run="r", call_id="1-1", until=5),
        TaskEnded(task_id=A, outcome="failed", code="internal"),
    ):
        background = fold(background, event, at=7)

    data = background.model_dump(mode="json", exclude_defaults=True)
    assert data["tasks"][A] == {"run": "r", "call_id": "1-1", "status": "failed", "ended_at": 7, "code": "internal"}
    assert "tasks" not in data["groups"][A]
    assert Background.model_validate(data) == background
    assert Background.model_validate_json(background.model_dump_json()) == background
