"""Sessions: list, read, set the context, delete; their background tasks and groups: list, read, end, decide.

A task's id is that of its run, a group's that of a task. The session decides who may see them. A run that was deleted,
or was cancelled before its request arrived, names no session: then the caller has to name it.
"""

import asyncio
from typing import Annotated, Any

import structlog
from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, Field

from contracts.sessions import records
from contracts.sessions.proposals import SessionProposalControl
from contracts.sessions.records import SessionContextInput, SessionEntry, SessionStatus
from contracts.sessions.tasks import GroupView, SessionTaskControl, TaskControlAction, TaskStatusName, TaskView
from contracts.wire import keys, subjects
from contracts.wire.base import HttpInput
from contracts.wire.names import new_id, own_session_id, run_of_own_session
from services.gateway.auth.caller import Caller, Right
from services.gateway.edge import routing
from services.gateway.edge.request_body import read_json
from services.gateway.edge.routing import RequestCaller
from services.gateway.errors import InvalidInput, NotFound, RefusedByPlanner, SessionDeleting
from services.gateway.parts import GatewayParts, Parts
from services.gateway.runs import messages
from services.gateway.runs.control import LATER, STOPPING
from services.gateway.runs.index import PAGE_CURSOR
from services.shared.redaction.json_values import CUT_MARK, wire_size
from services.shared.sessions.fold import after
from services.shared.sessions.state import Session, group_view, shown_groups, task_view

logger = structlog.get_logger(__name__)

ToSession = (
    records.SessionContextRequested | records.SessionDeletionRequested | SessionTaskControl | SessionProposalControl
)
router = routing.new_router("sessions", routing.SessionRoute)


class SessionPage(BaseModel):
    """Some sessions, newest first."""

    sessions: list[SessionEntry]
    next_cursor: str | None = Field(default=None, description="ask for the following page with it; null: there is none")


@router.get("/v1/sessions", response_model=SessionPage)
async def list_sessions(
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(max_length=100, pattern=PAGE_CURSOR)] = None,
    user_id: routing.Filter = None,
) -> Response:
    """List sessions, newest first. Runs without a session are in the list of runs only.

    With a filter a page may be short: go on while there is a `next_cursor`.
    """
    sessions, next_cursor = await parts.index.page(SessionEntry, caller, limit, cursor, user_id=user_id)
    return await routing.json_response(SessionPage(sessions=sessions, next_cursor=next_cursor), request.headers)


@router.get("/v1/sessions/{session_id}", response_model=SessionStatus)
async def get_session(session_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Return a session: its newest runs, those that wait, its summary, its context and its open pauses.

    A run that was requested without a session is the only one of the session `run-<its id>`.
    """
    return await routing.json_response(await parts.sessions.status(caller, session_id), request.headers)


@router.delete(
    "/v1/sessions/{session_id}", status_code=202, dependencies=[routing.needs("run")], response_class=Response
)
async def delete_session(session_id: str, parts: GatewayParts, caller: RequestCaller) -> None:
    """Delete a session with its runs and artifacts. Open runs are cancelled first."""
    session = await parts.sessions.get_to_change(caller, session_id)
    run = run_of_own_session(session.session_id)
    if run is not None and not session.seq:
        await parts.deletions.delete(caller.tenant, run, session.created_at)
        return
    await tell_session(parts, caller, session_id, "delete", records.SessionDeletionRequested(by=caller.key_id))
    logger.info("session_deletion_requested", session_id=session_id, tenant=caller.tenant)


@router.put(
    "/v1/sessions/{session_id}/context",
    status_code=204,
    dependencies=[routing.needs("run")],
    response_class=Response,
    responses={202: {"description": "It will be set; it is not yet."}},
    openapi_extra=routing.body_of(SessionContextInput),
)
async def set_context(
    session_id: str, parts: GatewayParts, request: Request, response: Response, caller: RequestCaller
) -> None:
    """Set values that later runs of the session are shown as untrusted data."""
    context = await read_json(request, SessionContextInput, parts.settings.max_body_bytes)
    session = await parts.sessions.get_to_change(caller, session_id)
    if session.is_deleting:
        raise SessionDeleting
    if wire_size(after(session, [records.ContextSet(values=context.values)]).context) > records.MAX_CONTEXT_BYTES:
        raise InvalidInput("values", f"the context of a session must not exceed {records.MAX_CONTEXT_BYTES} bytes")
    requested = records.SessionContextRequested(
        values=context.values, session_id=session_id, by=caller.key_id, user_id=caller.user_id or session.user_id
    )
    request_id = messages.context_id(requested.by, context.values)
    if not await _is_answered(parts, caller, session_id, f"context-{new_id()}", requested, request_id):
        response.status_code = 202


async def _is_answered(
    parts: Parts, caller: Caller, session_id: str, name: str, message: ToSession, request_id: str
) -> bool:
    """Send a message, and return whether the session has answered it within 5 s. Raises TryAgain."""
    live = subjects.live_session(caller.tenant, keys.session_key(session_id))
    async with parts.session_answers.expected(live, request_id) as answer:
        await tell_session(parts, caller, session_id, name, message)
        try:
            async with asyncio.timeout(messages.ANSWER_WAIT_S):
                await answer
        except TimeoutError:
            return False
    return True


async def tell_session(parts: Parts, caller: Caller, session_id: str, name: str, message: ToSession) -> None:
    """Store a message to a session. What comes of it is on the session's log. Raises TryAgain."""
    key = keys.session_key(session_id)
    subject = subjects.session_inbox(caller.tenant, key, name)
    # The id is new each time: a session that was deleted may have begun anew meanwhile.
    await parts.writer.store(subject, message.model_dump_json().encode(), f"{key}-{name}-{new_id()}")


SessionId = Annotated[str, Query(min_length=1, max_length=200)]
OfSession = Annotated[
    str | None,
    Query(alias="session_id", min_length=1, max_length=200, description="only needed once the task's run is deleted"),
]
_NOT_FOUND = frozenset({"task_not_found", "group_not_found"})
_VIEWS: dict[str, type[TaskView | GroupView]] = {"task": TaskView, "group": GroupView}

task_router = routing.new_router("tasks")


class TaskChangeInput(HttpInput):
    """The body of a request that changes a task or group. It has no fields, and may be left out."""


class TaskList(BaseModel):
    """The tasks of a session, oldest first."""

    tasks: list[TaskView] = Field(description="without results")


class GroupList(BaseModel):
    """The groups of a session, oldest first."""

    groups: list[GroupView]


@task_router.get("/v1/tasks", response_model=TaskList)
async def list_tasks(
    session_id: SessionId,
    parts: GatewayParts,
    request: Request,
    caller: RequestCaller,
    status: TaskStatusName | None = None,
) -> Response:
    """List the background tasks of a session, oldest first: all that have not ended, and the newest others."""
    session = await parts.sessions.get(caller, session_id)
    tasks = [each for each in session.background.tasks.values() if status in {None, each.status}]
    shown = TaskList(tasks=[task_view(session, each, with_result=False) for each in tasks])
    return await routing.json_response(shown, request.headers)


@task_router.get("/v1/tasks/{task_id}", response_model=TaskView)
async def get_task(
    task_id: str, parts: GatewayParts, request: Request, caller: RequestCaller, session_id: OfSession = None
) -> Response:
    """Return a task with what it found. Its run has the same id."""
    session = await _session_of(parts, caller, task_id, session_id)
    view = _shown(session, "task", task_id)
    if isinstance(view, TaskView) and view.result.endswith(CUT_MARK):
        run = await parts.runs.find(caller.tenant, task_id)
        payload = run.status().payload if run is not None else None
        view = view.model_copy(update={"result": payload.raw_answer}) if payload is not None else view
    return await routing.json_response(view, request.headers)


@task_router.get("/v1/groups", response_model=GroupList)
async def list_groups(session_id: SessionId, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """List the groups of a session, oldest first: all that have not ended, and the newest others."""
    session = await parts.sessions.get(caller, session_id)
    shown = GroupList(groups=[group_view(session, each) for each in shown_groups(session)])
    return await routing.json_response(shown, request.headers)


@task_router.get("/v1/groups/{group_id}", response_model=GroupView)
async def get_group(
    group_id: str, parts: GatewayParts, request: Request, caller: RequestCaller, session_id: OfSession = None
) -> Response:
    """Return a group of tasks."""
    session = await _session_of(parts, caller, group_id, session_id)
    return await routing.json_response(_shown(session, "group", group_id), request.headers)


def _add_change(noun: str, action: TaskControlAction, right: Right, does: str) -> None:
    """Add the route that changes a task or group by an action, which needs a right. `does`: what it does, in words."""

    async def change(
        subject_id: Annotated[str, Path(alias=f"{noun}_id")],
        parts: GatewayParts,
        request: Request,
        caller: RequestCaller,
        session_id: OfSession = None,
    ) -> Response:
        session = await _session_of(parts, caller, subject_id, session_id)
        view = _shown(session, noun, subject_id)
        await parts.sessions.check_change(caller, view.tasks if isinstance(view, GroupView) else [subject_id])
        key = routing.idempotency_key(request)
        request_id = caller.run_id_for_key(f"{action} {noun} {subject_id}\n{key}") if key else new_id()
        wanted = SessionTaskControl.model_validate({"id": request_id, "action": action, f"{noun}_id": subject_id})
        session, status = await _changed(parts, request, caller, session, wanted)
        return await routing.json_response(_shown(session, noun, subject_id), request.headers, status)

    view = _VIEWS[noun]
    more: dict[str, Any] = {"response_model": view, "responses": {202: {"model": view, "description": LATER}}}
    task_router.post(
        f"/v1/{noun}s/{{{noun}_id}}/{action}",
        name=f"{action}_{noun}",
        description=does,
        dependencies=[routing.needs(right)],
        openapi_extra=routing.body_of(TaskChangeInput, keyed=True, optional=True),
        **more,
    )(change)


async def _session_of(parts: Parts, caller: Caller, task_id: str, session_id: str | None) -> Session:
    """Return the session of a task, as far as the caller may see it. Raises NotFound and BusError.

    `task_id`: or the id of a group. `session_id`: None: the one that the task's run names.
    """
    if session_id is None:
        request = (await parts.runs.get(caller, task_id)).request()
        if request is None or request.parent is None:
            raise NotFound
        session_id = request.session_id or own_session_id(request.parent)
    return await parts.sessions.get(caller, session_id)


def _shown(session: Session, noun: str, subject_id: str) -> TaskView | GroupView:
    """Return a task with its result, or a group. A group without a name is not shown. Raises NotFound."""
    task, group = session.background.tasks.get(subject_id), session.background.groups.get(subject_id)
    if noun == "task" and task is not None:
        return task_view(session, task)
    if noun == "group" and group is not None and group.name:
        return group_view(session, group)
    raise NotFound


async def _changed(
    parts: Parts, request: Request, caller: Caller, session: Session, wanted: SessionTaskControl
) -> tuple[Session, int]:
    """Request a change. Return the session after it, and the status of the answer."""
    await read_json(request, TaskChangeInput, parts.settings.max_body_bytes, optional=True)
    if wanted.id not in session.background.answered:
        if session.is_deleting:
            raise SessionDeleting
        message = wanted.model_copy(update={"by": caller.key_id})
        changing = _is_answered(parts, caller, session.session_id, f"task-{wanted.id}", message, wanted.id)
        await parts.streams.while_connected(request.receive, changing, STOPPING)
        # As the leader of the stream has it: a replica may lag behind.
        found = await parts.sessions.find(caller.tenant, session.session_id, is_current=True)
        if found is None:
            raise NotFound
        session = found
    answered = session.background.answered
    if wanted.id not in answered:
        return session, 202
    if (fault := answered[wanted.id]) is not None:
        raise NotFound if fault.code in _NOT_FOUND else RefusedByPlanner(fault.code, fault.reason)
    return session, 200


_UNGROUPED = "what a task found that was spawned without a group (`HUMAN_GATED`)."
_GROUPED = "what the tasks of a group found (`HUMAN_GATED`), once it has ended."
_add_change("task", "cancel", "run", "End a task's run. The task counts as failed in its group.")
_add_change("task", "apply", "apply", f"Show later runs of the session {_UNGROUPED}")
_add_change("task", "reject", "apply", f"Show no run {_UNGROUPED}")
_add_change("group", "seal", "run", "Let no further task join the group. It ends when all its tasks have ended.")
_add_change("group", "cancel", "run", "Seal the group, and end the runs of its tasks.")
_add_change("group", "apply", "apply", f"Show later runs of the session {_GROUPED}")
_add_change("group", "reject", "apply", f"Show no run {_GROUPED}")
