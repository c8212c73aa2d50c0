"""The arguments of `task`: what is taken, and the complaint about what is not."""

import json
from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from services.planner.models.types import Reply
from services.planner.run.turn.decision import Calls, Invalid
from services.planner.strategies.react.reading import ReactReading, read_task
from services.planner.strategies.react.strategy import NativeReading

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOLS = {"work": ToolSpec(name="work", input_schema=SCHEMA), "tool_task": ToolSpec(name="task", input_schema=SCHEMA)}
JOB = {"mode": "job", "tool": "work", "tool_args": {"n": 1}}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"mode": "subagent", "query": "q", "retain_turn": False}, None),
        ({"mode": "subagent", "query": "q", "group": "g", "group_report": "any", "name": None}, {"name"}),
        (JOB, None),
    ],
)
def test_what_is_taken(given: dict[str, Any], read: set[str] | None) -> None:
    """All fields that were given, and no others."""
    assert read_task(given, TOOLS) == {key: value for key, value in given.items() if key not in (read or ())}


def test_a_tool_is_recorded_under_its_own_name() -> None:
    """A reserved name is shown under an alias."""
    assert read_task({**JOB, "tool": "tool_task"}, TOOLS) == {**JOB, "tool": "task"}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, '"query"'),
        ({"mode": "daemon"}, "mode"),
        ({"mode": "subagent"}, '"query" is missing'),
        ({"mode": "subagent", "query": " "}, '"query" is missing'),
        ({"mode": "subagent", "query": "x" * 40_000}, '"query" has 40,000 bytes'),
        ({"mode": "job"}, '"tool" is missing'),
        ({"mode": "job", "tool": "read_artifact"}, "The tools are: tool_task, work"),
        ({"mode": "job", "tool": "work"}, '"tool_args" does not fit'),
        ({**JOB, "tool_args": {"n": "x"}}, "n: "),
        ({**JOB, "group": "g", "group_id": "h"}, 'Both "group" and "group_id"'),
        ({**JOB, "retain": True}, "'retain' is no field of task: leave it out. The fields are: name, mode"),
        ({**JOB, "group": " "}, '"group" must have'),
        ({**JOB, "name": "x" * 300}, '"name" must have'),
        ({**JOB, "retain_turn": "later"}, "retain_turn"),
        ({**JOB, "merge_strategy": "shuffle"}, "merge_strategy"),
    ],
)
def test_a_complaint_names_the_field(given: dict[str, Any], names: str) -> None:
    """And says how to mend it."""
    complaint = read_task(given, TOOLS)
    assert isinstance(complaint, str)
    assert names in complaint


def test_a_tool_of_the_run_replaces_one_for_tasks() -> None:
    """The model calls what it is shown."""
    own = ToolSpec(name="tasks_list", input_schema=SCHEMA)
    call = Reply(text=json.dumps({"next_node": "tasks_list", "args": {"n": 1}}))
    decision = ReactReading({"tasks_list": own}, tasks=True).decide(call)
    assert isinstance(decision, Calls)
    assert decision.calls == (("tasks_list", {"n": 1}),)
    built_in = ReactReading({}, tasks=True).decide(Reply(text='{"next_node": "tasks_list", "args": {}}'))
    assert isinstance(built_in, Calls)
    assert (built_in.node, built_in.calls) == ("tasks.list", (("tasks.list", {}),))


def replies(*tasks: dict[str, Any]) -> list[tuple[type[ReactReading], Reply]]:
    """These tasks in one reply, in each of its forms."""
    lines = [json.dumps({"next_node": "task", "args": task}) for task in tasks]
    plan = {"next_node": "plan", "args": {"steps": [{"node": "task", "args": task} for task in tasks]}}
    calls = tuple({"function": {"name": "task", "arguments": json.dumps(task)}} for task in tasks)
    return [
        (ReactReading, Reply(text="\n".join(lines))),
        (ReactReading, Reply(text=json.dumps(plan))),
        (NativeReading, Reply(text="", tool_calls=calls)),
    ]


def test_tasks_of_one_reply_make_one_group() -> None:
    """Its last one seals it, and waits for it, where any of them says so."""
    asked: dict[str, Any] = {"mode": "subagent", "group": "g", "retain_turn": True}
    alone: dict[str, Any] = {"mode": "subagent", "query": "alone", "retain_turn": True}
    plain: dict[str, Any] = {"mode": "subagent", "group": "g"}
    given = [{**asked, "query": "1"}, alone, {**asked, "query": "2"}, {**plain, "query": "3"}]
    spawned = [{**plain, "query": "1"}, alone, {**plain, "query": "2"}, {**asked, "query": "3"}]
    for reading, reply in replies(*given):
        decision = reading({}, tasks=True).decide(reply)
        assert isinstance(decision, Calls)
        assert (decision.node, decision.calls) == ("task", tuple(("task.spawn", each) for each in spawned))


def test_a_task_is_no_step_among_calls() -> None:
    """And a tool for tasks is no tool of a job."""
    for reading, reply in replies({"mode": "subagent", "query": "1"}, {"mode": "subagent"}):
        assert isinstance(reading({}, tasks=True).decide(reply), Invalid)
    mixed = '{"next_node": "tasks_list", "args": {}}\n{"next_node": "task", "args": {"mode": "subagent", "query": "q"}}'
    decision = ReactReading({}, tasks=True).decide(Reply(text=mixed))
    assert isinstance(decision, Invalid)
    assert "start the tasks in one reply" in decision.complaint
    job = {"next_node": "task", "args": {"mode": "job", "tool": "tasks_list"}}
    refused = ReactReading(TOOLS, tasks=True).decide(Reply(text=json.dumps(job)))
    assert isinstance(refused, Invalid)
    assert "tasks_" not in refused.complaint.partition("The tools are")[2]
