"""Which of several actions of a reply count, the warning that names the others, and the arguments of `task`."""

import json
from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from services.planner.models.types import Reply
from services.planner.run.turn.decision import Calls, Final, Invalid
from services.planner.strategies.react.reading import ReactReading, read_task
from services.planner.strategies.react.strategy import NativeReading

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
TOOLS = {name: ToolSpec(name=name, input_schema=SCHEMA) for name in ("look", "save")}
BOTH = (("look", {"q": "a"}), ("save", {"q": "b"}))


def call(node: str, **args: Any) -> str:
    """An action of two fields."""
    return json.dumps({"next_node": node, "args": args})


A, B, DONE = call("look", q="a"), call("save", q="b"), call("final_response", answer="Done.")
ENVELOPE = {"tool_calls": [{"function": {"name": name, "arguments": json.dumps(args)}} for name, args in BOTH]}


@pytest.mark.parametrize(
    ("text", "calls", "dropped"),
    [
        (f"{A}\n{B}", BOTH, ""),
        (f"[{A}, {B}]", BOTH, ""),
        (f"1. {A}\n2. {B}", BOTH, ""),
        (f"```json\n{A}\n```\n\n```json\n{B}\n```", BOTH, ""),
        (json.dumps(ENVELOPE), BOTH, ""),
        (f"{A}\n{A}", BOTH[:1], ""),
        (f"{A}\n{B}\n{DONE}", BOTH, "final_response"),
        (f"{A}\n{DONE}", BOTH[:1], "final_response"),
        (f"{A}\nObservation: it says b.\n{B}", BOTH[:1], "save"),
        (f"{A}\n{call('plan', steps=[{'node': 'save', 'args': {}}])}", BOTH[:1], "plan"),
    ],
)
def test_calls_right_behind_each_other_are_a_plan(text: str, calls: tuple[object, ...], dropped: str) -> None:
    """What stands behind prose may be made up from a result that the model has not seen."""
    decision = ReactReading(TOOLS).decide(Reply(text=text))
    assert isinstance(decision, Calls)
    assert decision.calls == calls
    assert [line.rpartition(": ")[2] for line in decision.warnings] == [dropped] * bool(dropped)


@pytest.mark.parametrize("reading", [ReactReading, NativeReading])
def test_an_answer_that_comes_first_counts(reading: type[ReactReading]) -> None:
    """The calls behind it are named."""
    functions = [{"name": "final_response", "arguments": '{"answer": "Done."}'}, ENVELOPE["tool_calls"][0]["function"]]
    native = Reply(text="", tool_calls=tuple({"function": function} for function in functions))
    decision = reading(TOOLS).decide(native if reading is NativeReading else Reply(text=f"{DONE}\n{A}"))
    assert isinstance(decision, Final)
    assert decision.warnings == ("the reply held further actions, which were left out: look",)


@pytest.mark.parametrize(
    ("text", "form", "rules"),
    [
        (A, "unified", []),
        (f'  {{"thought": "t", {A[1:]}', "legacy", []),
        (f"Look:\n```json\n{A}\n```", "unified", ["code_fence"]),
        (f"I look. {A} Done.", "unified", ["text_around"]),
        ("{'next_node': 'look', 'args': {'q': 'a'},}", "unified", ["lenient_json"]),
        (f"Hm. {DONE}\n</think>\n{A}", "unified", ["unopened_thought", "text_around"]),
        (f"{A}\n{B}", "unified", ["text_around", "several_actions"]),
        ('{"name": "Look", "arguments": {"q": "a"}}', "foreign", ["adjusted"]),
        ("<function=look><parameter=q>a</parameter></function>", "notation", ["Qwen-Coder"]),
        ("<look><q>a</q></look>", "notation", ["names of tools"]),
    ],
)
def test_how_a_reply_was_written(text: str, form: str, rules: list[str]) -> None:
    """And what was needed to read it."""
    decision = ReactReading(TOOLS).decide(Reply(text=text))
    assert isinstance(decision, Calls)
    assert decision.form is not None
    assert (decision.form.form, [rule.partition(",")[0] for rule in decision.form.rules]) == (form, rules)


def test_how_a_native_reply_was_written() -> None:
    """Calls, or a text."""
    calls = NativeReading(TOOLS).decide(Reply(text="", tool_calls=tuple(ENVELOPE["tool_calls"])))
    text = NativeReading(TOOLS).decide(Reply(text="Hello."))
    salvaged = ReactReading(TOOLS).decide(Reply(text="Hello."))
    assert isinstance(salvaged, Invalid)
    assert salvaged.salvage is not None
    assert [each.form and each.form.form for each in (calls, text, salvaged.salvage)] == ["native", "text", "text"]


def test_one_wrong_call_rejects_all() -> None:
    """As a step of a plan does."""
    decision = ReactReading(TOOLS).decide(Reply(text=f"{A}\n{call('lok', q='b')}"))
    assert isinstance(decision, Invalid)
    assert "lok" in decision.complaint


@pytest.mark.parametrize("node", ["nope", "final_response", "plan"])
def test_a_wrong_join_leaves_the_calls_and_says_why(node: str) -> None:
    """The results are worth something without it."""
    decision = ReactReading(TOOLS).decide(Reply(text=call("plan", steps=[{"node": "look"}], join={"node": node})))
    assert isinstance(decision, Calls)
    assert [name for name, _ in decision.calls] == ["look"]
    assert decision.join is None
    assert node in (decision.note or "")


JOB_SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
WORK = {
    "work": ToolSpec(name="work", input_schema=JOB_SCHEMA),
    "tool_task": ToolSpec(name="task", input_schema=JOB_SCHEMA),
}
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
    assert read_task(given, WORK) == {key: value for key, value in given.items() if key not in (read or ())}


def test_a_tool_is_recorded_under_its_own_name() -> None:
    """A reserved name is shown under an alias."""
    assert read_task({**JOB, "tool": "tool_task"}, WORK) == {**JOB, "tool": "task"}


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
    complaint = read_task(given, WORK)
    assert isinstance(complaint, str)
    assert names in complaint


def test_a_tool_of_the_run_replaces_one_for_tasks() -> None:
    """The model calls what it is shown."""
    own = ToolSpec(name="tasks_list", input_schema=JOB_SCHEMA)
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
    refused = ReactReading(WORK, tasks=True).decide(Reply(text=json.dumps(job)))
    assert isinstance(refused, Invalid)
    assert "tasks_" not in refused.complaint.partition("The tools are")[2]
