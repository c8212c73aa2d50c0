"""The server behind `/mcp`: the SDK's, with what a key may use as its tools, and artifacts and runs as its resources.

Rule 1: a call goes the way of `POST /v1/tools/{name}/call`, a question that of `POST /v1/runs`: the same checks,
approvals and budgets, and one run for each.
Rule 2: a run goes on when its client is lost. It is cancelled by `notifications/cancelled`; since 2026-07-28, where a
client says so by closing the stream, by that.
Rule 3: nothing of a request outlives its connection. So there is a manager of the SDK for each.
"""

import asyncio
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import mcp_types as types
from fastapi import Response
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contracts.runs.requests import AgentModels, CallInput, ResumeInput, RunInput, RunStatus
from contracts.tools.messages import ToolSpec
from contracts.wire.names import InvalidName, checked_id
from services.gateway.auth.caller import Caller
from services.gateway.errors import InvalidInput, NotFound, Problem
from services.gateway.parts import Parts
from services.gateway.protocols.mcp import answers
from services.gateway.protocols.mcp.answers import Context, Scene, check_cursor, is_new, scene_of
from services.gateway.runs import control
from services.gateway.runs.accept import Accepted, accept_call, accept_input
from services.messaging.errors import BusError
from services.runtime import exact_json
from services.runtime.health import VERSION
from services.runtime.http_server import Receive, Scope, Send
from services.shared.runs.run_follower import RunFollower
from services.shared.tools.builtin import model_name

Args = TypeVar("Args", bound=BaseModel)
WAIT_FOR_RUN = "wait_for_run"
_AGENT_PREFIX = "run_agent_"
_STOPPED = "The gateway stopped waiting; the run {run} goes on. Its result: {tool} with this run_id."


class Question(BaseModel):
    """The arguments of an agent's tool."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, description="the question, with all that it needs")
    session_id: str = Field(default="", max_length=200, description="of an earlier answer: continues that conversation")


class RunId(BaseModel):
    """The arguments of `wait_for_run`."""

    model_config = ConfigDict(extra="forbid")

    run_id: str = Field(pattern="^[0-9a-f]{32}$")


class _State(BaseModel):
    """What a client brings back with its answers: the run that asked, and the tokens of what was asked."""

    run: str
    tokens: dict[str, str]


class McpAnswer(Response):
    """The answer to one message, however long it takes."""

    def __init__(self, body: bytes, opened: str, run: str | None, max_bytes: int) -> None:
        """`opened`: the id of the session that the answer opens, else empty. `run`: of the message, see `Scene`."""
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
                more = [(b"mcp-session-id", self._opened.encode())] if self._opened else []
                if not any(name.lower() == b"cache-control" for name, _ in part["headers"]):
                    more.append((b"cache-control", b"no-store"))
                part = {**part, "headers": [*part["headers"], *more]}
            await send(part)

        scope["state"]["mcp_run"] = self._run
        accept = dict(scope["headers"]).get(b"accept", b"")
        is_json = b"event-stream" not in accept and b"*/*" not in accept  # Some clients name no streams, or nothing.
        if is_json:
            others = [header for header in scope["headers"] if header[0] != b"accept"]
            scope = {**scope, "headers": [*others, (b"accept", b"application/json, text/event-stream")]}
        manager = StreamableHTTPSessionManager(
            SERVER, stateless=True, json_response=is_json, max_request_body_size=self._max_bytes
        )
        async with manager.run():
            await manager.handle_request(scope, replayed, answered)


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


def _tool(spec: ToolSpec) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=spec.side_effects in {"none", "read"},
        destructive_hint=spec.side_effects in {"write", "external"},
        idempotent_hint=spec.idempotent,
        open_world_hint=spec.side_effects == "external",
    )
    schema = {**spec.input_schema, "type": "object"}
    return types.Tool(name=spec.name, description=spec.description, input_schema=schema, annotations=hints)


async def _list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    check_cursor(params)
    parts, caller, *_ = scene_of(context)
    made: list[tuple[str, str, type[BaseModel]]] = [
        (WAIT_FOR_RUN, "Wait for a run that was begun before, and return its result.", RunId)
    ]
    for name, agent in (await _agents(parts, caller)).items():
        made.append((name, agent.description or f"Ask the agent {agent.name}.", Question))
    found = {
        name: ToolSpec(name=name, description=text, input_schema=form.model_json_schema(), side_effects="external")
        for name, text, form in made
    } | _tools(parts, caller)
    return types.ListToolsResult(tools=[_tool(found[name]) for name in sorted(found)])


async def _call_tool(
    context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    scene = scene_of(context)
    try:
        with scene.parts.streams.counted(scene.caller.tenant):
            accepted = await _begun(scene, params)
            return await _followed(context, scene, accepted, is_wait=params.name == WAIT_FOR_RUN)
    except Problem as problem:
        fields = [f"{each['field']}: {each['message']}" for each in problem.extra.get("errors", ())]
        return _failure(f"{problem.code}: {'; '.join([problem.detail, *fields])}")
    except BusError:
        return _failure("try_again: The message bus does not answer.")


async def _begun(scene: Scene, params: types.CallToolRequestParams) -> Accepted:
    """Return the run of a call: a new one, or the one that is named. A tool of the catalogue wins over an agent."""
    parts, caller, request, run = scene
    name, args = params.name, params.arguments or {}
    is_tool = name in _tools(parts, caller)
    agent = None if is_tool else (await _agents(parts, caller)).get(name)
    if not is_tool and agent is None and name != WAIT_FOR_RUN:
        raise MCPError(types.INVALID_PARAMS, f"There is no such tool: {name[:100]}")
    if params.request_state is not None:
        return await _resumed(scene, params.request_state, params.input_responses or {})
    if is_tool:
        return await accept_call(parts, request, caller, name, CallInput(args=args), run)
    if agent is None:
        return await _known(scene, _checked(RunId, args).run_id)
    run_input = RunInput(agent=agent.name, **_checked(Question, args).model_dump(exclude_defaults=True))
    return await accept_input(parts, request, caller, run_input, is_followed=True, run=run)


def _checked(model: type[Args], args: dict[str, Any]) -> Args:
    try:
        return model.model_validate(args, strict=True)
    except ValidationError as error:
        raise InvalidInput.of(error) from None


async def _known(scene: Scene, run: str) -> Accepted:
    found = await scene.parts.runs.get(scene.caller, run)
    return Accepted(run, found.session_id, RunFollower(scene.parts.bus, scene.caller.tenant, run), 0)


async def _resumed(scene: Scene, state: str, given: types.InputResponses) -> Accepted:
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
        await control.decide(scene.parts, scene.request, scene.caller, asked.run, resume)
    return accepted


async def _followed(
    context: Context, scene: Scene, accepted: Accepted, *, is_wait: bool
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
        if not parts.streams.closing and is_new(context) and not is_wait:
            with anyio.CancelScope(shield=True), suppress(Problem, BusError):
                found = await parts.runs.get_to_change(caller, accepted.run)
                begun = found.request()
                if not found.has_ended and begun is not None and begun.key_id == caller.key_id:
                    await control.cancel(parts, caller.tenant, accepted.run, "the client closed the stream")
        raise
    status = status.model_copy(update={"session_id": accepted.session_id})
    if status.payload is None:
        return _asked(context, caller, status)
    answer = answers.answer_of(status)
    text = answer.value if isinstance(answer.value, str) else exact_json.dumps(answer.value).decode()
    # Before 2026-07-28 a structured result is an object.
    return types.CallToolResult(
        content=[types.TextContent(text=text), *answer.links],
        structured_content=answer.value if is_new(context) or isinstance(answer.value, dict) else None,
        is_error=answer.is_error,
    )


def _asked(context: Context, caller: Caller, status: RunStatus) -> types.CallToolResult | types.InputRequiredResult:
    """Ask the client's person, where client, key and question allow it, else say how the run goes on."""
    can = context.session.client_capabilities
    forms = {pause.pause_id: answers.form_of(pause) for pause in status.pauses}
    is_askable = (
        is_new(context)
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


SERVER: Server[Any] = Server(
    "runwire",
    version=VERSION,
    instructions=(
        f"Tools and agents of a Runwire deployment. A call that waits for a person says so, with a run_id: "
        f"{WAIT_FOR_RUN} returns its result once it has one."
    ),
    cache_hints={"tools/list": CacheHint(ttl_ms=10_000)},
    get_tool_input_schema=lambda _name: None,
    on_list_tools=_list_tools,
    on_call_tool=_call_tool,
    on_list_resources=answers.list_resources,
    on_list_resource_templates=answers.list_templates,
    on_read_resource=answers.read_resource,
)
SERVER.middleware.clear()  # Its spans; the gateway has its own.
