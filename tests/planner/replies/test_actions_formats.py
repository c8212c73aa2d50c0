"""What each action format accepts, what a complaint names, and the action's own helpers."""

import json

import pytest

from contracts.runs.actions import PlannerAction
from services.planner.replies.actions.normalize import Normalized, normalize_action
from services.planner.replies.answer_stream import AnswerStream

STEP = {"node": "a", "args": {"q": 1}}
FIVE = {"thought": "t", "next_node": "search", "args": {"q": 1}, "plan": None, "join": None}


@pytest.mark.parametrize(
    ("obj", "wrong"),
    [
        (FIVE, ""),
        ({"next_node": "search", "args": {"q": 1}}, ""),
        ({"thought": "t", "action": FIVE}, ""),
        ({**FIVE, "next_node": None, "args": {"answer": "x"}}, ""),
        ({**FIVE, "next_node": None, "plan": [STEP]}, ""),
        ({"next_node": "final_response", "args": {"answer": "x"}}, "next_node"),
        ({"next_node": "plan", "args": {"steps": [STEP]}}, "next_node"),
        ({"next_node": None, "args": {"steps": [STEP]}}, "steps"),
        ({**FIVE, "plan": {"steps": [STEP]}}, "plan"),
        ({**FIVE, "answer": "x"}, "answer"),
        ({"answer": "x"}, "answer"),
        ({"name": "search", "arguments": {"q": 1}}, "name"),
        ({"thought": "t", "plan": [STEP]}, "next_node"),
    ],
)
def test_the_legacy_format_takes_the_five_field_form_alone(obj: dict[str, object], wrong: str) -> None:
    """Fields may be left out but for the node; any other form is refused, with the field that is wrong."""
    for given in (json.dumps(obj), f"So:\n```json\n{json.dumps(obj)}\n```"):
        result = normalize_action(given, action_format="legacy", tools={"search"})
        assert (result.error is None) == (not wrong), result
        assert wrong in result.complaint
        shown = AnswerStream(action_format="legacy", tools={"search"})
        assert not (wrong and shown.feed(json.dumps(obj)))


def test_a_complaint_names_what_is_allowed() -> None:
    """Not what this run has not: background tasks, tools where there are none, JSON where calls are expected."""
    for tools in (frozenset({"search"}), frozenset[str]()):
        complaint = normalize_action("prose", tools=tools).complaint
        assert "task" not in complaint
        assert ("plan" in complaint) == bool(tools)
    for action_format in ("auto", "unified", "legacy"):
        named = [
            normalize_action("{", tools={"a"}, action_format=action_format, tasks=tasks) for tasks in (True, False)
        ]
        assert ['"task"' in each.complaint for each in named] == [True, False]
    refused = normalize_action("prose", tools={"search"})
    assert refused.complaint.startswith(refused.cause)
    assert "Answer with" not in refused.cause


def test_every_answer_that_is_dropped_is_named() -> None:
    """Fields beside the arguments are named too."""
    reply = {
        "next_node": "final_response",
        "args": {"answer": "a", "text": "b", "mine": 1},
        "note": "c",
        "content": "d",
    }
    result = normalize_action(json.dumps(reply))
    assert result.action == PlannerAction(next_node="final_response", args={"answer": "a", "mine": 1})
    assert [warning.split(" ")[0] for warning in result.warnings] == ["`text`", "`content`", "`note`"]


def test_an_action_says_what_it_is() -> None:
    """An action has exactly one of the four kinds."""
    actions = [PlannerAction(next_node=node) for node in ("final_response", "parallel", "task.tool", "search")]
    assert [action.opcode for action in actions] == ["final_response", "plan", "task", None]
    assert [(action.is_terminal, action.is_parallel) for action in actions] == [
        (True, False),
        (False, True),
        (False, False),
        (False, False),
    ]


def unified(reply: str) -> Normalized:
    """A reply under the strict format."""
    return normalize_action(reply, action_format="unified")


@pytest.mark.parametrize(
    "reply",
    [
        '{"next_node": "search", "args": {"q": 1}}',
        '```json\n{"next_node": "search", "args": {"q": 1}}\n```',
        ' \ufeff{"args": {"q": 1}, "next_node": "search"}\n',
    ],
)
def test_the_strict_format_takes_two_fields(reply: str) -> None:
    """White space and a fence around them are no other form."""
    assert unified(reply).action == PlannerAction(next_node="search", args={"q": 1})


@pytest.mark.parametrize(
    ("reply", "error", "complaint"),
    [
        ('{"thought": "t", "next_node": "search", "args": {}}', "no_action", "`thought` is no field"),
        ('{"next_node": "search"}', "no_action", "`args` is missing"),
        ('{"next_node": null, "args": {"answer": "x"}}', "no_action", "`next_node` must be a text"),
        ('{"next_node": "", "args": {}}', "no_action", "`next_node` is empty"),
        ('{"next_node": "search", "args": "{}"}', "no_action", "`args` must be an object"),
        ('{"next_node": "final_response", "args": {"answer": 5}}', "no_action", "`args.answer` must be a text"),
        ('{"next_node": "plan", "args": {"steps": {}}}', "no_action", "`args.steps` must be a list"),
        ('{"next_node": "plan", "args": {"steps": [{"tool": "a"}]}}', "no_action", "`args.steps[0]` must be an object"),
        (
            '{"next_node": "plan", "args": {"steps": [{"node": "a", "args": []}]}}',
            "no_action",
            "`args.steps[0].args` must be",
        ),
        ('{"next_node": "plan", "args": {"steps": [], "join": "j"}}', "no_action", "`args.join` must be"),
        ('[{"next_node": "search", "args": {}}]', "no_action", "inside a list"),
        (json.dumps('{"next_node": "search", "args": {}}'), "no_action", "inside a text"),
        ('{"next_node": "a", "args": {}}{"next_node": "b", "args": {}}', "no_action", "more than one object"),
        ("{'next_node': 'search', 'args': {}}", "unparseable", "a key in quotes is expected, at line 1, column 2"),
        ('{"next_node": "search", "args": {},}', "unparseable", "a comma before the end"),
        ('{"next_node": "search", "args": {', "unparseable", "ends too early"),
        ("text", "unparseable", "no JSON object"),
    ],
)
def test_the_strict_format_refuses_the_rest(reply: str, error: str, complaint: str) -> None:
    """With the exact field and what was expected of it."""
    result = unified(reply)
    assert (result.action, result.error) == (None, error)
    assert complaint in result.complaint
