"""The server behind `/mcp`: the SDK's, with what a key may use as its tools, and artifacts and runs as its resources.

Rule 1: a call goes the way of `POST /v1/tools/{name}/call`, a question that of `POST /v1/runs`: the same checks,
approvals and budgets, and one run for each.
Rule 2: a run goes on when its client is lost. It is cancelled by `notifications/cancelled`; since 2026-07-28, where a
client says so by closing the stream, by that.
Rule 3: nothing of a request outlives its connection. So there is a manager of the SDK for each.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import anyio
import mcp_types as types
from fastapi import Request, Response
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contracts.runs.requests import AgentModels, CallInput, ResumeInput, RunInput, RunStatus
from contracts.tools.messages import ToolSpec
from contracts.wire.names import InvalidName, checked_id
from services.gateway.auth.caller import Caller
from services.gateway.errors import InvalidInput, NotFound, Problem
from services.gateway.parts import Parts
from services.gateway.runs import control, decisions
from services.gateway.runs.accept import Accepted, accept_call, accept_input
from services.messaging.errors import BusError
from services.runtime.health import VERSION
from services.runtime.http_server import Receive, Scope, Send
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound
from services.shared.runs.run_follower import RunFollower
from services.shared.tools.names import model_name

from . import answers

Args = TypeVar("Args", bound=BaseModel)
Context = ServerRequestContext[Any, Request]
WAIT_FOR_RUN = "wait_for_run"
_AGENT_PREFIX = "run_agent_"
_RESOURCE_NOT_FOUND = -32002
_MAX_RESOURCE_BYTES = 8 << 20
_LIST_TTL_MS = 10_000
_STOPPED = "The gateway stopped waiting; the run {run} goes on. Its result: {tool} with this run_id."
_QUESTION = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "description": "the question, with all that it needs"},
        "session_id": {"type": "string", "description": "of an earlier answer: continues that conversation"},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_RUN_ID = {
    "type": "object",
    "properties": {"run_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"}},
    "required": ["run_id"],
    "additionalProperties": False,
}


class _Question(BaseModel):
    """The arguments of an agent's tool."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1)
    session_id: str | None = Field(default=None, min_length=1, max_length=200)


class _RunId(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run_id: str


class _State(BaseModel):
    """What a client brings back with its answers: the run that asked, and the tokens of what was asked."""

    run: str
    tokens: dict[str, str]


class _Scene(NamedTuple):
    """Who asks, and where. `run`: the id that a new run gets, if the client's session decides it."""

    parts: Parts
    caller: Caller
    request: Request
    run: str | None


class McpAnswer(Response):
    """The answer to one message, however long it takes."""

    def __init__(self, body: bytes, opened: str, run: str | None, max_bytes: int) -> None:
        """`opened`: the id of the session that the answer opens, else empty. `run`: of the message, see `_Scene`."""
        self.status_code, self.background = 200, None
        self._message, self._opened, self._run, self._max_bytes = body, opened, run, max_bytes
        self.init_headers({})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK answer."""
        is_read = False

        async def replayed() -> Any:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": self._message, "more_body": False}

        async def answered(part: Any) -> None:
            if part["type"] == "http.response.start":
                named = {name.lower() for name, _ in part["headers"]}
                more = [(b"mcp-session-id", self._opened.encode())] if self._opened and part["status"] == 200 else []  # noqa: PLR2004
                if b"cache-control" not in named:
                    more.append((b"cache-control", b"no-store"))
                part = {**part, "headers": [*part["headers"], *more]}
            await send(part)

        scope["state"]["mcp_run"] = self._run
        manager = StreamableHTTPSessionManager(SERVER, stateless=True, max_request_body_size=self._max_bytes)
        async with manager.run():
            await manager.handle_request(scope, replayed, answered)


def _scene(context: Context) -> _Scene:
    request = context.request
    if request is None:
        raise MCPError(types.INTERNAL_ERROR, "This server is reached over HTTP.")
    state = request.state
    # What the routes read of a request beside its headers is whether its client is there, which the SDK watches.
    return _Scene(request.app.state.parts, state.caller, Request(request.scope, _never), state.mcp_run)


async def _never() -> Any:
    await asyncio.Event().wait()


def _tools(parts: Parts, caller: Caller) -> dict[str, ToolSpec]:
    """Return the tools of the catalogue that a key may use. What those of an agent are, planners alone know."""
    if caller.tools is None and caller.agents is not None:
        return {}
    return {
        name: spec
        for name, spec in sorted(parts.tools().items())
        if not spec.hidden and (caller.tools is None or name in caller.tools)
    }


async def _agents(parts: Parts, caller: Caller) -> dict[str, AgentModels]:
    """Return the agents that a key may ask, by the names of their tools."""
    found = [each for each in await parts.models.of_agents() if caller.agents is None or each.name in caller.agents]
    return {model_name(_AGENT_PREFIX + each.name): each for each in found}


def _tool(name: str, description: str, schema: dict[str, Any], spec: ToolSpec | None = None) -> types.Tool:
    effects = spec.side_effects if spec is not None else "external"
    hints = types.ToolAnnotations(
        read_only_hint=effects in {"none", "read"},
        destructive_hint=effects in {"write", "external"},
        idempotent_hint=spec is not None and spec.idempotent,
        open_world_hint=effects == "external",
    )
    return types.Tool(name=name, description=description, input_schema=schema, annotations=hints)


async def _list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    _check_cursor(params)
    parts, caller, *_ = _scene(context)
    found = {WAIT_FOR_RUN: _tool(WAIT_FOR_RUN, "Wait for a run that was begun before, and return its result.", _RUN_ID)}
    for name, agent in (await _agents(parts, caller)).items():
        found[name] = _tool(name, agent.description or f"Ask the agent {agent.name}.", _QUESTION)
    for name, spec in _tools(parts, caller).items():
        found[name] = _tool(name, spec.description, answers.object_schema(spec.input_schema), spec)
    return types.ListToolsResult(tools=[found[name] for name in sorted(found)])


def _check_cursor(params: types.PaginatedRequestParams | None) -> None:
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "The cursor is unknown: this list has one page.")


async def _call_tool(
    context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    scene = _scene(context)
    start = await _start_of(scene, params.name, params.arguments or {})
    if start is None:
        raise MCPError(types.INVALID_PARAMS, f"There is no such tool: {params.name[:100]}")
    try:
        with scene.parts.streams.counted(scene.caller.tenant):
            if params.request_state is not None:
                accepted = await _resumed(scene, params.request_state, params.input_responses or {})
            else:
                accepted = await start()
            return await _followed(context, scene, accepted)
    except Problem as problem:
        fields = [f"{each['field']}: {each['message']}" for each in problem.extra.get("errors", ())]
        return _failure(f"{problem.code}: {'; '.join([problem.detail, *fields])}")
    except BusError:
        return _failure("try_again: The message bus does not answer.")


async def _start_of(scene: _Scene, name: str, args: dict[str, Any]) -> Callable[[], Awaitable[Accepted]] | None:
    """Return what begins a run for a call of a tool; None: the key has no such tool. A tool of the catalogue wins."""
    parts, caller, request, run = scene
    if name in _tools(parts, caller):
        return lambda: accept_call(parts, request, caller, name, CallInput(args=args), run)
    if name == WAIT_FOR_RUN:
        return lambda: _known(scene, _checked(_RunId, args).run_id)
    if (agent := (await _agents(parts, caller)).get(name)) is None:
        return None

    async def ask() -> Accepted:
        given = _checked(_Question, args).model_dump(exclude_none=True)
        run_input = RunInput(agent=agent.name, **given)
        return await accept_input(parts, request, caller, run_input, is_followed=True, run=run)

    return ask


def _checked(model: type[Args], args: dict[str, Any]) -> Args:
    try:
        return model.model_validate(args, strict=True)
    except ValidationError as error:
        raise InvalidInput.of(error) from None


async def _known(scene: _Scene, run: str) -> Accepted:
    """Return a run that was begun before. Raises NotFound."""
    found = await scene.parts.runs.get(scene.caller, run)
    return Accepted(run, found.session_id, RunFollower(scene.parts.bus, scene.caller.tenant, run))


async def _resumed(scene: _Scene, state: str, given: types.InputResponses) -> Accepted:
    """Pass on what people have answered, and return the run that asked. What they dismissed waits on."""
    try:
        asked = _State.model_validate_json(state)
        accepted = await _known(scene, checked_id(asked.run))
    except (ValidationError, InvalidName) as error:
        raise NotFound("The state is none that a call has returned.") from error
    scene.caller.require("approve")
    for pause_id, answer in given.items():
        if pause_id not in asked.tokens or not isinstance(answer, types.ElicitResult) or answer.action == "cancel":
            continue
        content = answer.content or {}
        decision: dict[str, Any] = {"decision": "reject"}
        if answer.action == "accept" and set(content) <= {"decision", "note"} and "decision" in content:
            decision = dict(content)
        elif answer.action == "accept":
            decision = {"decision": "answer", "input": content}
        resume = _checked(ResumeInput, {"pause_id": pause_id, "token": asked.tokens[pause_id], **decision})
        await decisions.decide(scene.parts, scene.request, scene.caller, asked.run, resume)
    return accepted


async def _followed(
    context: Context, scene: _Scene, accepted: Accepted
) -> types.CallToolResult | types.InputRequiredResult:
    """Return the result of a run once it has ended or waits for a person, with progress for who asked for that."""
    parts, caller, *_ = scene
    shown = 0

    async def watch(data: bytes) -> None:
        nonlocal shown
        with suppress(ValidationError):
            for line in answers.progress_of(data):
                shown += 1
                await context.session.report_progress(shown, None, line)

    has_token = (context.meta or {}).get("progress_token") is not None
    waiting = parts.runs.wait_for_result(caller, accepted.run, accepted.follower, watch if has_token else None)
    working = asyncio.create_task(waiting)
    parts.streams.add(working, caller)
    try:
        status = await working
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return _failure(_STOPPED.format(run=accepted.run, tool=WAIT_FOR_RUN))
        if not parts.streams.closing and context.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            with anyio.CancelScope(shield=True), suppress(Problem, BusError):
                found = await parts.runs.get_to_change(caller, accepted.run)
                if not found.has_ended:
                    await control.cancel(parts, caller.tenant, accepted.run, "the client closed the stream")
        raise
    status = status.model_copy(update={"session_id": accepted.session_id})
    if status.payload is None:
        return _asked(context, caller, status)
    answer = answers.answer_of(status)
    links = [
        types.ResourceLink(uri=uri, name=name, mime_type=mime, size=size) for uri, name, mime, size in answer.links
    ]
    # Before 2026-07-28 a structured result is an object.
    is_new = context.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS
    return types.CallToolResult(
        content=[types.TextContent(text=answer.text), *links],
        structured_content=answer.value if is_new or isinstance(answer.value, dict) else None,
        is_error=answer.is_error,
    )


def _asked(context: Context, caller: Caller, status: RunStatus) -> types.CallToolResult | types.InputRequiredResult:
    """Ask the client's person, where client, key and question allow it, else say how the run goes on."""
    can = context.session.client_capabilities
    forms = {pause.pause_id: answers.form_of(pause) for pause in status.pauses}
    is_askable = (
        context.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS
        and can is not None
        and can.elicitation is not None
        and (can.elicitation.form is not None or can.elicitation.url is None)
        and "approve" in caller.rights
        and all(forms.values())
        and status.paused is None
    )
    if not is_askable or not forms:
        return _failure(answers.waiting_text(status, WAIT_FOR_RUN))
    requests: dict[str, Any] = {
        pause.pause_id: types.ElicitRequest(
            params=types.ElicitRequestFormParams(
                message=answers.question(pause), requested_schema=forms[pause.pause_id] or {}
            )
        )
        for pause in status.pauses
    }
    state = _State(run=status.run_id, tokens={pause.pause_id: pause.token for pause in status.pauses})
    return types.InputRequiredResult(input_requests=requests, request_state=state.model_dump_json())


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


async def _list_resources(_context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    _check_cursor(params)
    return types.ListResourcesResult(resources=[])


async def _list_templates(
    _context: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    _check_cursor(params)
    artifact = types.ResourceTemplate(
        name="artifact", uri_template=answers.ARTIFACT + "{artifact_id}", description="a file that a run has made"
    )
    run = types.ResourceTemplate(
        name="run", uri_template=answers.RUN + "{run_id}", description="the status of a run, and its result"
    )
    return types.ListResourceTemplatesResult(resource_templates=[artifact, run])


async def _read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    parts, caller, *_ = _scene(context)
    uri = params.uri
    try:
        if uri.startswith(answers.RUN):
            status = (await parts.runs.get(caller, uri.removeprefix(answers.RUN))).status()
            return _resource(uri, "application/json", status.model_dump_json().encode())
        artifact_id = checked_id(uri.removeprefix(answers.ARTIFACT))  # Any other URI is no id.
        await parts.access.get(caller, artifact_id)
        ref, body = await parts.artifacts.read(caller.tenant, artifact_id, limit=_MAX_RESOURCE_BYTES)
        return _resource(uri, ref.mime_type, body)
    except (NotFound, ArtifactNotFound, InvalidName) as error:
        is_new = context.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS
        code = types.INVALID_PARAMS if is_new else _RESOURCE_NOT_FOUND
        raise MCPError(code, "There is no such resource.", {"uri": uri[:200]}) from error
    except (ArtifactFailed, BusError) as error:
        reason = getattr(error, "reason", "the message bus does not answer")
        raise MCPError(
            types.INTERNAL_ERROR, f"It cannot be read: {reason}. GET /v1/artifacts streams any size."
        ) from error


def _resource(uri: str, mime_type: str, body: bytes) -> types.ReadResourceResult:
    """Return text where the media type says so and the bytes agree."""
    if mime_type.startswith("text/") or "json" in mime_type:
        with suppress(UnicodeDecodeError):
            text = types.TextResourceContents(uri=uri, mime_type=mime_type, text=body.decode())
            return types.ReadResourceResult(contents=[text])
    blob = types.BlobResourceContents(uri=uri, mime_type=mime_type, blob=base64.b64encode(body).decode())
    return types.ReadResourceResult(contents=[blob])


SERVER: Server[Any] = Server(
    "runwire",
    version=VERSION,
    instructions=(
        f"Tools and agents of a Runwire deployment. A call that waits for a person says so, with a run_id: "
        f"{WAIT_FOR_RUN} returns its result once it has one."
    ),
    cache_hints={"tools/list": CacheHint(ttl_ms=_LIST_TTL_MS)},
    get_tool_input_schema=lambda _name: None,
    on_list_tools=_list_tools,
    on_call_tool=_call_tool,
    on_list_resources=_list_resources,
    on_list_resource_templates=_list_templates,
    on_read_resource=_read_resource,
)
SERVER.middleware.clear()  # Its spans; the gateway has its own.
