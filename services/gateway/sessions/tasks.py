"""Find the session of a background task or group by its id: a task's id is that of its run, a group's that of a task.

The session decides who may see them. A run that was deleted, or was cancelled before its request arrived, names no
session: then the caller has to name it.
"""

from contracts.sessions.tasks import GroupView, TaskView
from contracts.wire.ids import own_session_id
from services.gateway.auth.caller import Caller
from services.gateway.errors import NotFound
from services.gateway.runs.reader import RunReader
from services.gateway.sessions.reader import SessionReader
from services.shared.sessions.state import Session
from services.shared.sessions.task_views import group_view, task_view


class TaskReader:
    """Finds the sessions of tasks and groups. Every route about one passes here."""

    def __init__(self, runs: RunReader, sessions: SessionReader) -> None:
        self._runs = runs
        self._sessions = sessions

    async def session_of(self, caller: Caller, task_id: str, session_id: str | None) -> Session:
        """Return the session of a task, as far as the caller may see it. Raises NotFound and BusError.

        `task_id`: or the id of a group. `session_id`: None: the one that the task's run names.
        """
        if session_id is None:
            request = (await self._runs.get(caller, task_id)).request()
            if request is None or request.parent is None:
                raise NotFound
            session_id = request.session_id or own_session_id(request.parent)
        return await self._sessions.get(caller, session_id)

    async def current(self, caller: Caller, session: Session) -> Session:
        """Return the session as the leader of its stream has it: a replica may lag behind. Raises NotFound."""
        found = await self._sessions.find(caller.tenant, session.session_id, is_current=True)
        if found is None:
            raise NotFound
        return found


def shown_task(session: Session, task_id: str) -> TaskView:
    """Return a task with its result. Raises NotFound."""
    task = session.background.tasks.get(task_id)
    if task is None:
        raise NotFound
    return task_view(session, task)


def shown_group(session: Session, group_id: str) -> GroupView:
    """Return a group. One without a name is not shown. Raises NotFound."""
    group = session.background.groups.get(group_id)
    if group is None or not group.name:
        raise NotFound
    return group_view(session, group)
