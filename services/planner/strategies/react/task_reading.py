"""Checks the arguments of `task`. A complaint names the field, and says how to mend it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from contracts.runs.actions import TaskArgs
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import describe
from contracts.wire.limits import MAX_INLINE_BYTES
from services.planner.conversation.catalogue import HINT_LIMIT
from services.planner.conversation.task_tools import RUN_AGENT, AgentTool
from services.shared.json_schema.checks import InvalidSchema, complaints

MAX_NAMES_LISTED = 20
_SEALING = ("group_sealed", "retain_turn")
_MODES = '"mode" is "subagent", with a "query", or "job", with a "tool" and its "tool_args"'


def read_task(args: Mapping[str, Any], tools: Mapping[str, ToolSpec]) -> dict[str, Any] | str:
    """Return the arguments of a spawn as the log holds them, or a complaint. `tools`: those a job may call."""
    if unknown := [key for key in args if key not in TaskArgs.model_fields]:
        known = ", ".join(TaskArgs.model_fields)
        return f"{unknown[0][:80]!r} is no field of task: leave it out. The fields are: {known}."
    try:
        task = TaskArgs.model_validate(args)
    except ValidationError as error:
        return f"The arguments of task do not fit: {describe(error, limit=None)}. {_MODES}."
    if complaint := _agent(task, tools) or _identity(task) or (_of_job(task, tools) if task.mode == "job" else ""):
        return complaint
    if task.mode == "subagent":
        if task.query is None or not task.query.strip():
            return '"query" is missing: a subagent needs the question that it is to answer.'
        if (size := len(task.query.encode())) > MAX_INLINE_BYTES:
            return f'"query" has {size:,} bytes, and at most {MAX_INLINE_BYTES:,} are taken: shorten it.'
    read = task.model_dump(exclude_none=True, exclude_defaults=True)
    return read | ({"tool": tools[task.tool].name} if task.tool is not None else {})


def in_one_group(tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tasks of one reply so that those of one label make one group: only its last one may seal it.

    That is the one that says so for all: its run waits for the group if any of them asked for that.
    """
    last = {task.get("group"): number for number, task in enumerate(tasks)}
    found = []
    for number, task in enumerate(tasks):
        group = task.get("group")
        sealing = {key: True for each in tasks for key in _SEALING if each.get("group") == group and each.get(key)}
        kept = {key: value for key, value in task.items() if key not in _SEALING}
        found.append(task if group is None else kept | (sealing if number == last[group] else {}))
    return found


def _agent(task: TaskArgs, tools: Mapping[str, ToolSpec]) -> str:
    spec = tools.get(RUN_AGENT)
    known = spec.input_schema["properties"]["agent"]["enum"] if isinstance(spec, AgentTool) else []
    if task.agent is None or (task.agent in known and task.mode == "subagent"):
        return ""
    return f'"agent" is for a subagent, and one of: {", ".join(known) or "none, so leave it out"}.'


def _identity(task: TaskArgs) -> str:
    if task.group is not None and task.group_id is not None:
        return (
            'Both "group" and "group_id" are given. Keep "group" for a group of this turn, by its label, or "group_id" '
            "for that very group, and leave the other one out."
        )
    for field in ("name", "group", "group_id"):
        text = getattr(task, field)
        if text is not None and (not text.strip() or len(text) > HINT_LIMIT):
            return f'"{field}" must have 1 to {HINT_LIMIT} characters: shorten it, or leave it out.'
    return "" if task.mode is not None else f"The task has no mode: {_MODES}."


def _of_job(task: TaskArgs, tools: Mapping[str, ToolSpec]) -> str:
    if task.tool is None:
        return '"tool" is missing: a job needs the name of the tool that it calls, and its arguments in "tool_args".'
    tools = {name: spec for name, spec in tools.items() if not isinstance(spec, AgentTool)}
    if (spec := tools.get(task.tool)) is None:
        known = ", ".join(sorted(tools)[:MAX_NAMES_LISTED]) or "none, so only a subagent can be started"
        return f'"tool" names no tool of this run: {task.tool[:80]!r}. The tools are: {known}.'
    try:
        faults = complaints(task.tool_args, spec.input_schema)
    except InvalidSchema as error:
        return f'"tool": {task.tool!r} cannot be used: its input schema is invalid ({error}).'
    return f'"tool_args" does not fit the schema of {task.tool!r}: {"; ".join(faults)}.' if faults else ""
