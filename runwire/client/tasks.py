"""The client's methods for background tasks and groups."""

from typing import TypeVar

from pydantic import BaseModel

from contracts.sessions.tasks import GroupView, TaskStatusName, TaskView
from contracts.wire import names
from runwire.client.transport import Transport, checked

V = TypeVar("V", TaskView, GroupView)
_PATHS: dict[type[BaseModel], str] = {TaskView: "/v1/tasks", GroupView: "/v1/groups"}


class _Tasks(BaseModel):
    tasks: list[TaskView]


class _Groups(BaseModel):
    groups: list[GroupView]


class TaskMethods:
    """Background tasks of sessions: list, read, cancel, and decide about what they found.

    `session_id` is only needed once the task's run is deleted. A change returns once it has been carried out. It raises
    NotFound, and RunwireError with a code of its own if it does not apply: `already_ended`, `group_not_complete`,
    `nothing_held`, `already_decided`, `task_in_group`.
    """

    _transport: Transport

    async def tasks(self, session_id: str, status: TaskStatusName | None = None) -> list[TaskView]:
        """List the tasks of a session, oldest first, without their results. Raises NotFound."""
        params = {"session_id": session_id} | ({"status": status} if status else {})
        return (await self._transport.ask(_Tasks, "GET", "/v1/tasks", params=params)).tasks

    async def task(self, task_id: str, *, session_id: str | None = None) -> TaskView:
        """Return a task with what it found. Its run has the same id. Raises NotFound."""
        return await self._read(TaskView, task_id, session_id)

    async def cancel_task(
        self, task_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> TaskView:
        """End a task's run; the task counts as failed in its group."""
        return await self._change(TaskView, task_id, "cancel", session_id, idempotency_key)

    async def apply_task(
        self, task_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> TaskView:
        """Show later runs what a task without a group found that is `HUMAN_GATED`."""
        return await self._change(TaskView, task_id, "apply", session_id, idempotency_key)

    async def reject_task(
        self, task_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> TaskView:
        """Show no run what a task without a group found that is `HUMAN_GATED`."""
        return await self._change(TaskView, task_id, "reject", session_id, idempotency_key)

    async def groups(self, session_id: str) -> list[GroupView]:
        """List the groups of a session, oldest first. Raises NotFound."""
        params = {"session_id": session_id}
        return (await self._transport.ask(_Groups, "GET", "/v1/groups", params=params)).groups

    async def group(self, group_id: str, *, session_id: str | None = None) -> GroupView:
        """Return a group. Raises NotFound."""
        return await self._read(GroupView, group_id, session_id)

    async def seal_group(
        self, group_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> GroupView:
        """Let no further task join a group; it ends when all its tasks have ended."""
        return await self._change(GroupView, group_id, "seal", session_id, idempotency_key)

    async def cancel_group(
        self, group_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> GroupView:
        """Seal a group, and end the runs of its tasks."""
        return await self._change(GroupView, group_id, "cancel", session_id, idempotency_key)

    async def apply_group(
        self, group_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> GroupView:
        """Show later runs what the tasks of a `HUMAN_GATED` group found, once it has ended."""
        return await self._change(GroupView, group_id, "apply", session_id, idempotency_key)

    async def reject_group(
        self, group_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> GroupView:
        """Show no run what the tasks of a `HUMAN_GATED` group found, once it has ended."""
        return await self._change(GroupView, group_id, "reject", session_id, idempotency_key)

    async def _read(self, kind: type[V], thing: str, session_id: str | None) -> V:
        return await self._transport.ask(kind, "GET", f"{_PATHS[kind]}/{checked(thing)}", params=_of(session_id))

    async def _change(self, kind: type[V], thing: str, verb: str, session_id: str | None, key: str | None) -> V:
        headers = {"Idempotency-Key": key or names.new_id()}
        path = f"{_PATHS[kind]}/{checked(thing)}/{verb}"
        answer = await self._transport.settle(path, headers=headers, params=_of(session_id))
        return self._transport.parsed(kind, answer)


def _of(session_id: str | None) -> dict[str, str] | None:
    return {"session_id": session_id} if session_id else None
