"""What a model may call about background tasks, where its run may have them: the action `task`, and the tools for them.

A tool of the run with the name of one of these tools replaces it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from contracts.sessions.tasks import MergeStrategy, ReportMode, TaskMode, TaskPolicy
from contracts.tools.messages import ToolSpec

_TASK = {"type": "string", "description": "id of a task"}
_GROUP = {"type": "string", "description": "id of a group"}


def _spec(name: str, description: str, side_effects: str, *properties: str) -> ToolSpec:
    known = {"task_id": _TASK, "group_id": _GROUP}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {each: known[each] for each in properties},
        "additionalProperties": False,
    }
    if len(properties) == 1:
        schema["required"] = [*properties]
    elif properties:
        schema |= {"minProperties": 1, "maxProperties": 1}
    return ToolSpec.model_validate(
        {"name": name, "description": description, "input_schema": schema, "side_effects": side_effects}
    )


_EITHER = ("task_id", "group_id")
_SPECS = [
    _spec("tasks_list", "List the background tasks and groups of this conversation, without their results.", "read"),
    _spec("tasks_status", "Show one background task or group, with its results.", "read", *_EITHER),
    _spec("tasks_seal", "Seal a group: no further task may join it.", "write", "group_id"),
    _spec("tasks_cancel", "Cancel a background task, or all tasks of a group.", "write", *_EITHER),
    _spec("tasks_apply", "Pass on that the user accepts held results. A person confirms it.", "write", *_EITHER),
    _spec("tasks_reject", "Pass on that the user rejects held results. A person confirms it.", "write", *_EITHER),
]
TASK_SPECS = {spec.name: ToolSpec.model_validate_json(spec.model_dump_json()) for spec in _SPECS}
"""The tools for background tasks, by the name that a model writes."""
CALL_NAMES = {name: name.replace("_", ".", 1) for name in TASK_SPECS}
"""That name -> the name of the call in the log."""


RUN_AGENT = "run_agent"


class AgentTool(ToolSpec):
    """The tool with which a model asks another agent; its calls are spawns of tasks that the run waits for."""


def with_agents(tools: Sequence[ToolSpec], policy: TaskPolicy | None) -> Sequence[ToolSpec]:
    """Return the tools of a run with the one that asks other agents, where it may. A tool of its name replaces it."""
    if policy is None or not policy.agents or any(tool.name == RUN_AGENT for tool in tools):
        return tools
    listed = "; ".join(f"{name}: {text}" if text else name for name, text in policy.agents.items())
    schema = {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": [*policy.agents]},
            "query": {"type": "string", "minLength": 1, "description": "a question that needs no context"},
        },
        "required": ["agent", "query"],
        "additionalProperties": False,
    }
    return [*tools, AgentTool(name=RUN_AGENT, description=f"Ask another agent. {listed}", input_schema=schema)]


def agent_task(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the spawn for a call of `run_agent`."""
    return {"mode": "subagent", "name": args["agent"], "retain_turn": True, **args}


def _one_of(values: object) -> dict[str, Any]:
    return {"type": "string", "enum": [*get_args(values)]}


TASK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "a short label"},
        "mode": _one_of(TaskMode),
        "query": {"type": "string", "description": "of a subagent: a question that needs no context"},
        "tool": {"type": "string", "description": "of a job: the tool that is called once"},
        "tool_args": {"type": "object", "description": "of a job: the arguments of that call"},
        "merge_strategy": _one_of(MergeStrategy),
        "group": {"type": "string", "description": "label of a group of this turn"},
        "group_id": {"type": "string", "description": "that very group; not beside `group`"},
        "group_sealed": {"type": "boolean", "description": "this is the last task of its group"},
        "group_report": _one_of(ReportMode),
        "group_merge_strategy": _one_of(MergeStrategy),
        "retain_turn": {"type": "boolean", "description": "wait for the group and return its results"},
    },
    "required": ["mode"],
    "additionalProperties": False,
}
"""The arguments of `task`, for native tool calls."""


def task_specs(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Return the tools for background tasks, without those that a tool of the run replaces."""
    names = {tool.name for tool in tools}
    return [spec for name, spec in TASK_SPECS.items() if name not in names]


def call_name(spec: ToolSpec) -> str:
    """Return the name of a call in the log: that of its tool, with a dot for a tool for background tasks."""
    return CALL_NAMES[spec.name] if TASK_SPECS.get(spec.name) is spec else spec.name
