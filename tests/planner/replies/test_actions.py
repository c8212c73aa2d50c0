"""What one object means: every shape and spelling that a model may use for an action."""

import json
from typing import Any

import pytest

from contracts.runs.decisions import PlannerAction
from services.planner.replies.actions.names import opcode_of
from services.planner.replies.actions.normalize import normalize_action


def read(reply: Any, **options: Any) -> dict[str, Any]:
    """The action of a reply that is one, as a mapping; objects are written as JSON first."""
    result = normalize_action(reply if isinstance(reply, str) else json.dumps(reply), **options)
    assert result.error is None, result.complaint
    assert result.complaint == ""
    assert result.action is not None
    return result.action.model_dump()


def final(answer: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"next_node": "final_response", "args": fields if answer is None else {"answer": answer, **fields}}


def call(node: str, **args: Any) -> dict[str, Any]:
    return {"next_node": node, "args": args}


def plan(*steps: dict[str, Any], join: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"next_node": "plan", "args": {"steps": list(steps)} | ({"join": join} if join else {})}


STEP = {"node": "a", "args": {"q": 1}}
NULLS = {"plan": None, "join": None}


@pytest.mark.parametrize(
    "args", [None, [], [{"q": 1}], "no object", '[{"q": 1}]', '{"q": {"q": 1}', '{"q": 1} {"q": 2}', 5]
)
def test_tool_arguments_that_hold_no_object_are_empty(args: object) -> None:
    """The check against the tool's schema then names what is missing; nothing is invented."""
    assert read({"next_node": "search", "args": args}) == call("search")
    assert read({"next_node": "search"}) == call("search")


def test_tool_arguments_may_be_encoded_once_more() -> None:
    """Also twice, as a Python literal, in a fence, and in prose; in a step, a join and a task too."""
    fence, prose = '```json\n{"q": 1}\n```', 'So: {"q": 1}} as asked'
    for text in ('{"q": 1}', json.dumps('{"q": 1}'), "{'q': 1,}", '\ufeff{"q": 1}', fence, prose):
        assert read({"next_node": "search", "args": text}) == call("search", q=1)
        given = {"steps": [{"node": "a", "args": text}], "join": {"node": "j", "args": text}}
        assert read({"next_node": "plan", "args": given}) == plan(STEP, join={"node": "j", "args": {"q": 1}})
        assert read({"next_node": "task", "args": {"tool": "a", "tool_args": text}})["args"]["tool_args"] == {"q": 1}


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        *(({key: "x"}, "x") for key in ("answer", "raw_answer", "text", "response", "content")),
        ({"raw_answer": "first", "answer": "second"}, "first"),
        ({"content": "c", "text": "t", "answer": "a", "raw_answer": "r"}, "a"),
        ({"content": "c", "response": "r", "text": "t"}, "t"),
        ({"answer": None, "raw_answer": "x"}, "x"),
        ({"answer": ["a", "b"]}, "a\nb"),
        ({"answer": 0.5}, "0.5"),
        ({"answer": True}, "true"),
        ({"answer": {"text": {"content": "x"}}}, "x"),
        ({"answer": [{"type": "text", "text": "a"}, "b"]}, "a\nb"),
        ({"answer": {"rows": [1, 2]}}, '{"rows": [1, 2]}'),
        ("plain text", "plain text"),
        ('{"answer": "x"}', "x"),
        ('{"user": "wants JSON"}', '{"user": "wants JSON"}'),
        (["a", "b"], "a\nb"),
        (42, "42"),
        (["a", 5, {"n": 1}], 'a\n5\n{"n": 1}'),
    ],
)
def test_a_final_answer_is_one_text(given: object, answer: str) -> None:
    """In every form and place. The other answer keys are removed."""
    assert read({"next_node": "final_response", "args": given}) == final(answer)
    assert read({"thought": "t", "next_node": None, "args": given, **NULLS}) == final(answer)


@pytest.mark.parametrize(
    "args", [None, {}, [], "", "{}", [{"node": "a"}], {"answer": None}, {"answer": {}}, {"answer": []}]
)
def test_a_final_response_without_an_answer_stays_one(args: object) -> None:
    """Asking for the text belongs to the run."""
    assert read({"next_node": "final_response", "args": args}) == final()


def test_fields_of_an_answer_are_kept() -> None:
    """Known ones beside `args` too; unknown ones only inside, or where the object is nothing but the arguments."""
    assert read(
        {"next_node": "final_response", "args": {"answer": "x", "mood": 1}, "confidence": 0.4, "id": 7}
    ) == final("x", mood=1, confidence=0.4)
    assert read({"next_node": "final_response", "answer": "x", "args": {"route": "kb"}}) == final("x", route="kb")
    assert read({"thought": "t", "answer": "x", "mood": 1, "language": "en"}) == final("x", mood=1, language="en")
    assert read({"args": {"answer": "x"}, "language": "en"}) == final("x", language="en")
    assert read({"next_node": "final_response", "args": '{"confidence": 0.5}'}) == final(confidence=0.5)


def test_a_tool_with_exactly_that_name_wins_over_an_opcode_in_another_case() -> None:
    """The opcode's own spelling is reserved."""
    tools = frozenset({"Plan", "NULL", "Task"})
    assert read({"next_node": "Plan", "args": {"x": 1}}, tools=tools) == call("Plan", x=1)
    assert read({"next_node": "NULL", "args": {"answer": "x"}}, tools=tools) == call("NULL", answer="x")
    assert read({"next_node": "plan", "args": {}}, tools=tools)["next_node"] == "plan"
    assert read({"next_node": "PLAN", "args": {}}, tools=tools)["next_node"] == "plan"


def test_the_quoted_word_null_with_an_answer_is_final() -> None:
    """In any case; a plan beside it is a plan."""
    assert read({"next_node": "None", "args": {"answer": "x"}}) == final("x")
    assert read({"next_node": "null", "args": {}, "plan": [STEP]}) == plan(STEP)


@pytest.mark.parametrize("node", [5, True, 1.5, [], ["search"], {}, {"name": "search"}, "", "  "])
def test_a_node_that_is_no_text_is_an_error(node: object) -> None:
    """Never an empty answer, with any fields beside it."""
    for beside in ({}, {"args": {"answer": "x"}}, {"plan": [STEP]}, {"answer": "x"}):
        result = normalize_action(json.dumps({"next_node": node, **beside}))
        assert (result.action, result.error) == (None, "no_action")
        assert "`next_node` is" in result.complaint


@pytest.mark.parametrize(
    "given",
    [
        {"next_node": "plan", "args": {"steps": [STEP]}},
        {"next_node": "plan", "args": {"plan": [STEP]}},
        {"next_node": "plan", "args": {"plan": {"steps": [STEP]}}},
        {"next_node": "plan", "args": [STEP]},
        {"next_node": "plan", "args": json.dumps({"steps": [STEP]})},
        {"next_node": "plan", "args": json.dumps([STEP])},
        {"next_node": "plan", "steps": [STEP]},
        {"next_node": "parallel", "args": None, "plan": [STEP]},
        {"next_node": "plan", "args": {"steps": [STEP]}, "plan": []},
        {"next_node": "search", "args": {"steps": 3}, "plan": [STEP]},
        {"next_node": None, "plan": [STEP]},
        {"next_node": None, "args": {"steps": [STEP]}},
        {"thought": "t", "plan": [STEP], "args": {"answer": "x"}, "next_node": None},
        {"next_node": None, "args": {"plan": [STEP]}},
        {"args": {"steps": [STEP]}},
        {"steps": [STEP]},
        {"plan": [STEP]},
        {"plan": {"steps": [STEP]}, "answer": "x"},
    ],
)
def test_steps_wherever_they_stand(given: dict[str, Any]) -> None:
    """`steps` bare, under `plan`, or `args` as the list."""
    assert read(given) == plan(STEP)


@pytest.mark.parametrize("steps", [None, "a, b", 5, {"node": "a"}, []])
def test_steps_that_are_no_list_are_an_empty_plan(steps: object) -> None:
    """It runs nothing, and the model gets the reason."""
    result = normalize_action(json.dumps({"next_node": "plan", "args": {"steps": steps}}))
    assert result.action == PlannerAction(next_node="plan", args={"steps": []})
    assert bool(result.warnings) is (steps != [])


def test_an_empty_plan_beside_a_tool_is_a_plan() -> None:
    """`plan` present and not null, `[]` too, is a plan."""
    assert read({"next_node": "search", "args": {"q": 1}, "plan": []}) == plan()
    assert read({"next_node": "search", "args": {"q": 1}, "plan": None}) == call("search", q=1)


def test_steps_are_cleaned() -> None:
    """What has no node is dropped with a warning each; `tool` is `node`; arguments that are no object are empty."""
    steps = [
        "bad",
        {"x": 1},
        {"node": 5},
        {"node": " "},
        {"tool": " b ", "args": '{"q": 2}', "id": 1},
        {"node": None, "tool": "c", "args": [1]},
    ]
    result = normalize_action(json.dumps({"next_node": "plan", "args": {"steps": steps}}))
    assert result.action is not None
    assert result.action.model_dump() == plan({"node": "b", "args": {"q": 2}}, {"node": "c", "args": {}})
    assert [warning.split(" of ")[0] for warning in result.warnings] == ["step 1", "step 2", "step 3", "step 4"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        ({}, None),
        ("combine", None),
        (["j"], None),
        ({"args": {"x": 1}}, None),
        ({"node": 5}, None),
        ({"node": "j", "args": {}, "inject": None}, {"node": "j"}),
        ({"tool": " j ", "args": {"x": 1}, "inject": {}}, {"node": "j", "args": {"x": 1}, "inject": {}}),
        ({"node": "j", "args": '{"x": 1}'}, {"node": "j", "args": {"x": 1}}),
        ({"node": "j", "inject": ["$results"]}, {"node": "j", "inject": ["$results"]}),
    ],
)
def test_joins(given: object, kept: dict[str, Any] | None) -> None:
    """Without an object or a node there is no join; a wrong `inject` is kept, so that the model reads why it failed."""
    expected = plan(STEP, join=kept)
    assert read({"next_node": "plan", "args": {"steps": [STEP], "join": given}}) == expected
    assert read({"thought": "t", "next_node": None, "args": None, "plan": [STEP], "join": given}) == expected


@pytest.mark.parametrize(
    ("node", "given", "args"),
    [
        ("task", {"query": "q"}, {"mode": "subagent", "query": "q"}),
        ("task", {"tool": "t", "tool_args": '{"u": 1}'}, {"mode": "job", "tool": "t", "tool_args": {"u": 1}}),
        ("task", {"query": "q", "tool": "t", "tool_args": {}}, {"mode": "subagent", "query": "q"}),
        ("task", {"mode": " JOB ", "query": "q", "tool": "t"}, {"mode": "job", "tool": "t"}),
        ("task.subagent", {"mode": "job", "tool": "t"}, {"mode": "job", "tool": "t"}),
        ("task.subagent", {"tool": "t", "query": "q"}, {"mode": "subagent", "query": "q"}),
        ("task.tool", {"query": "q", "tool": "t", "mode": None}, {"mode": "job", "tool": "t"}),
        ("TASK.TOOL", {"tool": "t"}, {"mode": "job", "tool": "t"}),
        ("task", {"mode": "daemon", "query": "q", "tool": "t"}, {"mode": "daemon", "query": "q", "tool": "t"}),
        ("task", {"name": "x"}, {"name": "x"}),
        (
            "task",
            {"query": "q", "merge_strategy": "human gated"},
            {"mode": "subagent", "query": "q", "merge_strategy": "HUMAN_GATED"},
        ),
        ("task", {"name": "x", "group_merge_strategy": "Append"}, {"name": "x", "group_merge_strategy": "APPEND"}),
        ("task", {"name": "x", "merge_strategy": "shuffle"}, {"name": "x", "merge_strategy": "shuffle"}),
        ("task", {"name": "x", "group": None, "group_report": "ALL"}, {"name": "x", "group_report": "all"}),
        ("task", None, {}),
    ],
)
def test_tasks(node: str, given: object, args: dict[str, Any]) -> None:
    """The mode stated, else that of the alias, else the one implied; nothing of the other mode; any spelling."""
    assert read({"next_node": node, "args": given}) == {"next_node": "task", "args": args}


@pytest.mark.parametrize(
    "given",
    [
        {"name": "search", "arguments": {"q": 1}},
        {"name": "search", "arguments": '{"q": 1}'},
        {"name": "search", "parameters": {"q": 1}},
        {"tool": "search", "args": {"q": 1}},
        {"action": "search", "action_input": {"q": 1}},
        {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}]},
        {"content": None, "tool_calls": [{"name": "search", "args": {"q": 1}}]},
        {"function_call": {"name": "search", "arguments": '{"q": 1}'}},
        {"type": "function", "function": {"name": " search ", "arguments": {"q": 1}}},
        {"action": {"next_node": "search", "args": {"q": 1}}},
        {"action": '{"next_node": "search", "args": {"q": 1}}'},
        {"thought": "t", "action": {"action": {"name": "search", "arguments": {"q": 1}}}},
    ],
)
def test_calls_in_other_notations(given: dict[str, Any]) -> None:
    """And actions nested under `action`."""
    assert read(given) == call("search", q=1)


def test_calls_in_other_notations_may_be_opcodes() -> None:
    """A function call of `final_response` is the final response."""
    assert read({"name": "final_response", "arguments": {"answer": "x"}}) == final("x")
    assert read({"tool": "plan", "args": {"steps": [STEP]}}) == plan(STEP)
    assert read({"action": "Final Answer", "action_input": "x"}) == final("x")
    assert read({"content": "x", "tool_calls": []}) == final("x")


def test_several_calls_in_an_envelope() -> None:
    """The first is the action, the others are alternates."""
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in "abc"]
    result = normalize_action(json.dumps({"tool_calls": calls}))
    assert [action.next_node for action in (result.action, *result.alternates) if action] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "unrelated",
    [
        {},
        {"x": 1},
        {"name": "Ada", "age": 36},
        {"tool": "search"},
        {"action": "search"},
        {"action": {"x": 1}},
        {"args": {"q": 1}},
        {"args": {"text": "an argument"}},
        {"thought": "hm", "args": {}},
        {"text": "a row", "id": 5},
        {"answer": None},
        {"answer": {}},
        {"content": {"x": 1}},
        {"steps": 5000},
        {"tool_calls": []},
        {"name": 5, "arguments": {}},
    ],
)
def test_an_unrelated_object_is_no_action(unrelated: dict[str, Any]) -> None:
    """Least of all an empty answer. The complaint names the field that is missing and the keys that are there."""
    result = normalize_action(json.dumps(unrelated))
    assert (result.action, result.error) == (None, "no_action")
    assert "`next_node`" in result.complaint
    assert all(f"`{key}`" in result.complaint for key in unrelated)


def test_a_plan_behind_a_shown_answer_is_ignored() -> None:
    """The answer was on the user's screen already; in any other order the plan counts."""
    for node in (None, "final_response", "null"):
        shown = normalize_action(json.dumps({"next_node": node, "args": {"answer": "x"}, "plan": [STEP]}))
        assert shown.action is not None
        assert shown.action.model_dump() == final("x")
        assert shown.warnings == ("a plan behind the answer was ignored",)
        assert read({"plan": [STEP], "next_node": node, "args": {"answer": "x"}}) == plan(STEP)
        assert read({"args": {"answer": "x"}, "plan": [STEP], "next_node": node}) == plan(STEP)
        assert read({"next_node": node, "args": {"answer": ""}, "plan": [STEP]}) == plan(STEP)
        assert read({"next_node": node, "args": {"text": "x"}, "plan": [STEP]}) == plan(STEP)
    assert read({"next_node": None, "args": "x", "plan": []}) == final("x")
    assert read({"next_node": None, "args": ["x"], "plan": []}) == final("x")
    assert read({"next_node": None, "args": '{"answer": "x"}', "plan": []}) == plan()


PREFIXES = ("functions.", "default_api:", "functions::", "mcp__web__", "a.b/", "/")
SUFFIXES = (":0", "()", "<|channel|>commentary", "<|channel|>json", "#0", "[1]", ".")


@pytest.mark.parametrize(
    ("written", "called"),
    [
        *((f"{before}look", "look") for before in PREFIXES),
        *((f"look{behind}", "look") for behind in SUFFIXES),
        *((name, "look") for name in ("Look", " look\n", "assistant<|channel|>commentary to=functions.look")),
        *((name, "web.search") for name in ("web_search", "web-search", "functions.web_search:1")),
        *((name, "final_response") for name in ("FINAL_RESPONSE", " Final_Response ", "functions.Final_Response")),
        *((name, "plan") for name in ("Parallel", "PLAN")),
        ("Task.Tool", "task"),
        *((name, name) for name in ("GET", "x.get", "lookup", "look.x", "", "." * 300, "final_response_tool", "null")),
    ],
)
def test_a_decorated_name_means_one_tool(written: str, called: str) -> None:
    """It is called, with a warning, where no other tool may be meant. Padding and the case of opcodes do not count."""
    tools = frozenset({"look", "web.search", "Get", "get"})
    assert opcode_of(written, tools) == called
    if called in tools and written.strip() != called:
        warnings = normalize_action(json.dumps({"next_node": written, "args": {}}), tools=tools).warnings
        assert [warning for warning in warnings if f"`{called}` was called" in warning] == list(warnings) != []
