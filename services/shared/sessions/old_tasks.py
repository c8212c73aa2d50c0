"""Tasks that a session has dropped from its state, or whose results it has: its log still has them. Pure."""

from collections.abc import Sequence

from contracts.sessions.records import SessionEvent, SessionRecord
from contracts.sessions.tasks import (
    GroupEnded,
    GroupOpened,
    GroupSealed,
    ResultsMerged,
    ResultsRejected,
    TaskEnded,
    TaskSpawned,
)
from services.shared.sessions.task_fold import fold
from services.shared.sessions.task_state import Background


def recalled(background: Background, records: Sequence[SessionRecord], task_id: str) -> Background:
    """Return the tasks with one of them as the whole log has it; the same tasks if the log does not know it.

    `records`: all of the session. If the group was dropped too, it is returned with this one task.
    """
    events = [(event, record.at) for record in records for event in record.events]
    spawned = [event for event, _ in events if isinstance(event, TaskSpawned) and event.task_id == task_id]
    if not spawned:
        return background
    found = Background()
    for event, at in events:
        if _is_about(event, spawned[0]):
            found = fold(found, event, at)
    changes = {"tasks": {**background.tasks, **found.tasks}, "groups": {**found.groups, **background.groups}}
    return background.model_copy(update=changes)


def _is_about(event: SessionEvent, spawned: TaskSpawned) -> bool:
    match event:
        case TaskSpawned(task_id=task_id) | TaskEnded(task_id=task_id):
            return task_id == spawned.task_id
        case ResultsMerged(tasks=tasks):
            return spawned.task_id in tasks
        case GroupOpened() | GroupSealed() | GroupEnded() | ResultsRejected():
            return event.group_id == spawned.group_id
        case _:
            return False
