"""Calls about background tasks: what a spawn records, when a person is asked, and the message to the session. Pure.

The session answers these calls as tools do, with `call_finished`. A person confirms each spawn,
unless the agent's policy says otherwise, and always the decision about held results.
"""

from collections.abc import Sequence
from dataclasses import replace

from contracts.runs.events import Observed, Paused, PlannedCall
from contracts.runs.pauses import DEFAULT_PAUSE_S, pause_id
from contracts.runs.requests import JobRequested, RunRequested
from contracts.sessions.tasks import TASK_TOOLS, SessionTaskCalled
from contracts.wire import names
from contracts.wire.faults import Fault
from services.planner.run.state.people import with_answer_token
from services.planner.run.state.run import Run
from services.planner.run.state.task_budgets import divided, share

SPAWN = "task.spawn"
SHOWN_NAMES = {name: "task" if name == SPAWN else name.replace(".", "_") for name in TASK_TOOLS}
"""Name of the call in a log -> the name that a model writes."""
_TITLES = {
    SPAWN: "Start this in the background?",
    "tasks.apply": "Show later runs what was found?",
    "tasks.reject": "Reject what was found?",
}
"""Of the pauses in which a person is asked, by the name of the call."""
_SPAWN_SCHEMA = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "description": "whether the task is spawned"},
        "retain_turn": {"type": "boolean", "description": "whether the run waits for its result"},
    },
    "required": ["approve"],
    "additionalProperties": False,
}
MAX_QUERY_CHARACTERS = 200
"""Of a subagent's query in the message to the session. The request of the task's run holds all of it."""
_OWN_LIMITS = frozenset({"max_tokens", "max_cost_usd", "max_tool_calls", "deadline_s"})


def with_shares(run: Run, calls: Sequence[PlannedCall]) -> tuple[list[PlannedCall], list[Observed]]:
    """Return spawns with their parts of the run's limits, and the outcomes of those for which too little is left."""
    policy = run.started.tasks if run.started is not None else None
    spawns, refused = [], []
    for call in calls:
        part = share(run, policy.budget_share, calls=len(calls)) if policy is not None else "the policy for tasks"
        if isinstance(part, str):
            reason = f"The task was not spawned: too little of {part} is left for it. Do without it."
            fault = Fault(code="budget_exhausted", reason=reason)
            refused.append(Observed(call_id=call.call_id, tool=call.tool, status="failed", failure=fault))
            spawns.append(call)
        else:
            run = replace(run, set_aside={**run.set_aside, call.call_id: part})
            spawns.append(call.model_copy(update={"set_aside": part}))
    return spawns, refused


def confirmation(run: Run, now: int, step: int, call: PlannedCall) -> Paused | None:
    """Return the pause in which a person is asked about a call; None: nobody is asked. `now`: Unix ms."""
    started = run.started
    policy = started.tasks if started is not None else None
    is_spawn = call.tool == SPAWN
    if started is None or policy is None or call.tool not in _TITLES:
        return None
    if is_spawn and policy.spawn_requires_confirmation is False:
        return None
    pause = Paused(
        reason="confirmation",
        source="task",
        title=_TITLES[call.tool],
        until=now + int(DEFAULT_PAUSE_S * 1000),
        pause_id=pause_id(started.run_id, f"{call.call_id}-confirmation", 0),
        input_schema=_SPAWN_SCHEMA if is_spawn else None,
        call_id=call.call_id,
        tool=call.tool,
        arguments=call.args,
        step=step,
    )
    return with_answer_token(started, pause)


def message_of(run: Run, call: PlannedCall, tool_context: dict[str, object]) -> SessionTaskCalled | None:
    """Return the message to the session; None if the run is not open. A repeated message is the same."""
    started = run.started
    if started is None or started.tasks is None or call.call_id not in run.owner:
        return None
    args = {name: value for name, value in call.args.items() if name != "tool_args"}
    if isinstance(query := args.get("query"), str):
        args["query"] = query[:MAX_QUERY_CHARACTERS]
    decided_at = run.announced_at[call.call_id]
    # What a report's run has of the spawning run, and a task's run has not.
    handed_on = {"strategy", "memory", "limits", "tools"}
    report_as = started.request.model_dump(mode="json", include=handed_on, exclude_defaults=True)
    if call.args.get("agent"):
        report_as |= started.request.model_dump(mode="json", include={"agent", "model", "reasoning_effort"})
    return SessionTaskCalled(
        session_id=run.session_id or names.own_session_id(started.run_id),
        run=started.run_id,
        call_id=call.call_id,
        action=TASK_TOOLS[call.tool],
        args=args,
        policy=started.tasks,
        at=decided_at,
        report_as=report_as if call.tool == SPAWN else {},
        for_report=divided(call.set_aside)[1] if call.set_aside is not None else None,
        child=_child(run, call, tool_context, decided_at) if call.tool == SPAWN else None,
    )


def _child(run: Run, call: PlannedCall, tool_context: dict[str, object], decided_at: int) -> RunRequested | None:
    """Return the request of the task's run: what its parent was given, with limits of its own."""
    started, args = run.started, call.args
    if started is None or started.tasks is None or call.set_aside is None:
        return None
    parent, is_job = started.request, args.get("mode") == "job"
    agent = args.get("agent") or parent.agent
    # Another agent answers by its own strategy and models.
    own = {"strategy", "model", "reasoning_effort"} if agent == parent.agent else set()
    limits = {name: value for name, value in parent.limits.items() if name not in _OWN_LIMITS}
    return RunRequested(
        run_id=names.task_id(started.run_id, call.call_id),
        tenant=started.tenant,
        requested_at=decided_at,
        trace_id=parent.trace_id,
        request_id=parent.request_id or started.run_id,
        query=args["query"] if not is_job else args.get("name") or args["tool"],
        agent=agent,
        **{name: getattr(parent, name) for name in own},
        vision=parent.vision,
        session_id=run.session_id or names.own_session_id(started.run_id),
        cause="job" if is_job else "task",
        parent=started.run_id,
        depth=parent.depth + 1,
        hops=parent.hops,
        job=JobRequested(tool=args["tool"], args=args.get("tool_args") or {}) if is_job else None,
        key_budget=parent.key_budget,
        key_id=parent.key_id,
        is_user_pinned=parent.is_user_pinned,
        user_id=parent.user_id,
        llm_context=parent.llm_context,
        tool_context=tool_context,
        tools=[args["tool"]] if is_job else parent.tools,
        key_tools=parent.key_tools,
        limits=limits | divided(call.set_aside)[0].model_dump() | {"deadline_s": started.tasks.task_timeout_s},
    )
