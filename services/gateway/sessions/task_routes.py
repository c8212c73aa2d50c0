"""Background tasks of sessions and their groups: list, read, end, decide about what they found."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from contracts.sessions.tasks import GroupView, SessionTaskControl, TaskControlAction, TaskStatusName, TaskView
from contracts.wire.base import HttpInput
from contracts.wire.ids import new_id
from services.gateway.auth.caller import Caller, Right
from services.gateway.edge.compression import json_response
from services.gateway.edge.idempotency import idempotency_key
from services.gateway.edge.open_streams import OpenStreams
from services.gateway.edge.request_body import BodyLimit, parse, read_body
from services.gateway.edge.routing import RequestCaller, body_of, needs, new_router
from services.gateway.errors import NotFound, RefusedByPlanner
from services.gateway.runs.decisions import LATER, STOPPING
from services.gateway.sessions.control import SessionControl
from services.gateway.sessions.reader import SessionReader
from services.gateway.sessions.tasks import TaskReader, shown_group, shown_task
from services.shared.sessions.state import Session
from services.shared.sessions.task_views import group_view, shown_groups, task_view

SessionId = Annotated[str, Query(min_length=1, max_length=200)]
OfSession = Annotated[
    str | None,
    Query(alias="session_id", min_length=1, max_length=200, description="only needed once the task's run is deleted"),
]

_NOT_FOUND = frozenset({"task_not_found", "group_not_found"})


class TaskChangeInput(HttpInput):
    """The body of a request that changes a task or group. It has no fields, and may be left out."""


class TaskList(BaseModel):
    """The tasks of a session, oldest first."""

    tasks: list[TaskView] = Field(description="without results")


class GroupList(BaseModel):
    """The groups of a session, oldest first."""

    groups: list[GroupView]


class TaskRoutes:
    """Routes of tasks and groups."""

    def __init__(
        self,
        sessions: SessionReader,
        tasks: TaskReader,
        control: SessionControl,
        streams: OpenStreams,
        max_body_bytes: int,
    ) -> None:
        self._sessions = sessions
        self._tasks = tasks
        self._control = control
        self._streams = streams
        self._max_body_bytes = max_body_bytes

    def router(self) -> APIRouter:
        """Return the routes."""
        router = new_router("tasks")
        router.get("/v1/tasks", response_model=TaskList)(self.list_tasks)
        router.get("/v1/tasks/{task_id}", response_model=TaskView)(self.get_task)
        router.post("/v1/tasks/{task_id}/cancel", **_changes("run", TaskView))(self.cancel_task)
        router.post("/v1/tasks/{task_id}/apply", **_changes("apply", TaskView))(self.apply_task)
        router.post("/v1/tasks/{task_id}/reject", **_changes("apply", TaskView))(self.reject_task)
        router.get("/v1/groups", response_model=GroupList)(self.list_groups)
        router.get("/v1/groups/{group_id}", response_model=GroupView)(self.get_group)
        router.post("/v1/groups/{group_id}/seal", **_changes("run", GroupView))(self.seal_group)
        router.post("/v1/groups/{group_id}/cancel", **_changes("run", GroupView))(self.cancel_group)
        router.post("/v1/groups/{group_id}/apply", **_changes("apply", GroupView))(self.apply_group)
        router.post("/v1/groups/{group_id}/reject", **_changes("apply", GroupView))(self.reject_group)
        return router

    async def list_tasks(
        self, session_id: SessionId, request: Request, caller: RequestCaller, status: TaskStatusName | None = None
    ) -> Response:
        """List the background tasks of a session, oldest first: all that have not ended, and the newest others."""
        session = await self._sessions.get(caller, session_id)
        tasks = [each for each in session.background.tasks.values() if status in {None, each.status}]
        return await _response(request, TaskList(tasks=[task_view(session, each, with_result=False) for each in tasks]))

    async def get_task(
        self, task_id: str, request: Request, caller: RequestCaller, session_id: OfSession = None
    ) -> Response:
        """Return a task with what it found. Its run has the same id."""
        session = await self._tasks.session_of(caller, task_id, session_id)
        return await _response(request, shown_task(session, task_id))

    async def cancel_task(
        self, task_id: str, request: Request, caller: RequestCaller, session_id: OfSession = None
    ) -> Response:
        """End a task's run. The task counts as failed in its group."""
        return await self._change_task(request, caller, task_id, "cancel", session_id)

    async def apply_task(
        self, task_id: str, request: Request, caller: RequestCaller, session_id: OfSession = None
    ) -> Response:
        """Show later runs of the session what a task found that was spawned without a group (`HUMAN_GATED`)."""
        return await self._change_task(request, caller, task_id, "apply", session_id)

    async def reject_task(
        self, task_id: str, request: Request, caller: RequestCaller, session_id: OfSession = None
    ) -> Response:
        """Show no run what a task found that was spawned without a group (`HUMAN_GATED`)."""
        return await self._change_task(request, caller, task_id, "reject", session_id)

    async def list_groups(self, session_id: SessionId, request: Request, caller: RequestCaller) -> Response:
        """List the groups of a session, oldest first: all that have not ended, and the newest others."""
        session = await self._sessions.get(caller, session_id)
        return await _response(request, GroupList(groups=[group_view(session, each) for each in shown_groups(session)]))

    async def get_group(
        self, group_id: str, request: Request, caller: RequestCaller, session_id: OfSession = None
    ) -> Response:
        """Return a group of tasks."""
        session = await self._tasks.session_of(caller, group_id, session_id)
        return await _response(request, shown_group(session, group_id))

    async def seal_group(
        self, group_id: str, request: Request, caller: RequestCaller, session_id: OfSession = None
    ) -> Response:
        """Let no further task join the group. It ends when all its tasks have ended."""
        return await self._change_group(request, caller, group_id, "seal", session_id)

    async def cancel_group(
        self, group_id: str, request: Request, caller: RequestCaller, session_id: OfSession = None
    ) -> Response:
        """Seal the group, and end the runs of its tasks."""
        return await self._change_group(request, caller, group_id, "cancel", session_id)

    async def apply_group(
        self, group_id: str, request: Request, caller: RequestCaller, session_id: OfSession = None
    ) -> Response:
        """Show later runs of the session what the tasks of a group found (`HUMAN_GATED`), once it has ended."""
        return await self._change_group(request, caller, group_id, "apply", session_id)

    async def reject_group(
        self, group_id: str, request: Request, caller: RequestCaller, session_id: OfSession = None
    ) -> Response:
        """Show no run what the tasks of a group found (`HUMAN_GATED`), once it has ended."""
        return await self._change_group(request, caller, group_id, "reject", session_id)

    async def _change_task(
        self, request: Request, caller: Caller, task_id: str, action: TaskControlAction, session_id: str | None
    ) -> Response:
        session = await self._tasks.session_of(caller, task_id, session_id)
        shown_task(session, task_id)
        request_id = _id(request, caller, f"{action} task {task_id}")
        control = SessionTaskControl(id=request_id, action=action, task_id=task_id)
        session, status = await self._changed(request, caller, session, control)
        return await _response(request, shown_task(session, task_id), status)

    async def _change_group(
        self, request: Request, caller: Caller, group_id: str, action: TaskControlAction, session_id: str | None
    ) -> Response:
        session = await self._tasks.session_of(caller, group_id, session_id)
        shown_group(session, group_id)
        request_id = _id(request, caller, f"{action} group {group_id}")
        control = SessionTaskControl(id=request_id, action=action, group_id=group_id)
        session, status = await self._changed(request, caller, session, control)
        return await _response(request, shown_group(session, group_id), status)

    async def _changed(
        self, request: Request, caller: Caller, session: Session, control: SessionTaskControl
    ) -> tuple[Session, int]:
        """Request a change. Return the session after it, and the status of the answer."""
        if body := await read_body(request, BodyLimit(self._max_body_bytes)):
            parse(TaskChangeInput, body)
        if control.id not in session.background.answered:
            control = control.model_copy(update={"by": caller.key_id})
            changing = self._control.change_tasks(caller, session, control)
            await self._streams.while_connected(request.receive, changing, STOPPING)
            session = await self._tasks.current(caller, session)
        answered = session.background.answered
        if control.id not in answered:
            return session, 202
        if (fault := answered[control.id]) is not None:
            raise NotFound if fault.code in _NOT_FOUND else RefusedByPlanner(fault.code, fault.reason)
        return session, 200


def _id(request: Request, caller: Caller, what: str) -> str:
    """Return the id of a request: the same for the same idempotency key."""
    key = idempotency_key(request)
    return caller.run_id_for_key(f"{what}\n{key}") if key else new_id()


def _changes(right: Right, view: type[TaskView | GroupView]) -> dict[str, Any]:
    """Describe a route that changes a task or group."""
    return {
        "dependencies": [needs(right)],
        "response_model": view,
        "responses": {202: {"model": view, "description": LATER}},
        "openapi_extra": body_of(TaskChangeInput, keyed=True, optional=True),
    }


async def _response(request: Request, shown: BaseModel, status: int = 200) -> Response:
    return await json_response(shown.model_dump_json().encode(), request.headers, status)
