"""The demo model always replies with a valid action; it spawns what a question asks for, and says what came of it."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.decisions import TaskArgs
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from services.planner.conversation.encoding import Messages
from services.planner.models import demo
from services.planner.models.types import ModelRequest
from services.planner.replies.actions.normalize import normalize_action
from services.shared.json_schema.checks import complaints
from tests.support.demo_conversations import TEXT, Conversation, tool

# As a list it would fill a screen.
NAMES = st.sampled_from(
    "expression path query city count from_currency url kind items flag x date options".split()  # noqa: SIM905
)
SIMPLE: list[dict[str, Any]] = [
    {"type": kind} for kind in ("string", "integer", "number", "boolean", ["string", "null"])
]
LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from([*SIMPLE, {}]),
    st.sampled_from([{"type": "string", "minLength": 3}, {"type": "string", "pattern": "^[A-Z]+$"}, {"maximum": 5}]),
    st.lists(st.sampled_from(["red", "dark blue", "7"]), min_size=1, unique=True).map(lambda given: {"enum": given}),
    st.sampled_from([{"$ref": "#/$defs/missing"}, {"anyOf": [{"type": "null"}, {"type": "integer"}]}, {"const": 4}]),
    st.just({"format": "date"}),
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    properties = st.dictionaries(NAMES, inner, max_size=4)
    return st.one_of(
        properties.flatmap(
            lambda known: st.sets(st.sampled_from(sorted(known)) if known else st.nothing()).map(
                lambda required: {"type": "object", "properties": known, "required": sorted(required)}
            )
        ),
        inner.map(lambda items: {"type": "array", "items": items}),
    )


SCHEMAS = objects(st.recursive(LEAVES, objects, max_leaves=5)).filter(lambda schema: schema["type"] == "object")
TOOLS = st.lists(
    st.builds(
        ToolSpec,
        name=st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True),
        description=st.text(max_size=60),
        input_schema=SCHEMAS,
        tags=st.lists(st.text(max_size=8), max_size=2),
    ),
    max_size=4,
    unique_by=lambda spec: spec.name,
)
WORDS = """What is 17*23 3.5 -4 and then sales.csv dark blue red Paris USD EUR https://a.b/c a@b.cd 2026-11-20 today
#12 ORD-7 ? ; ( ) " ' `"""
PARTS = st.sampled_from(WORDS.split())
QUESTIONS = st.one_of(st.text(min_size=1, max_size=80), st.lists(PARTS, min_size=1, max_size=12).map(" ".join))
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
KEYS = st.sampled_from(["answer", "result", "title", "text", "x"])
OBSERVATIONS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


@given(question=QUESTIONS, tools=TOOLS, observation=OBSERVATIONS)
def test_every_reply_can_be_carried_out(question: str, tools: list[ToolSpec], observation: Any) -> None:
    """A tool of the catalogue with arguments that its schema takes, or an answer; after a result always an answer."""
    conversation = Conversation(question, tools)
    node, _ = conversation.decide()
    specs = {spec.name: spec for spec in tools}
    if node != "final_response":
        for call in conversation.calls:
            assert not complaints(call.args, specs[call.tool].input_schema)
        conversation.observe(*[observation] * len(conversation.calls))
        assert conversation.answer().strip()


@given(text=st.text(max_size=300))
def test_pieces_always_add_up(text: str) -> None:
    """Nothing of a reply is lost in cutting it. They are as small as a model's tokens."""
    pieces = list(demo.pieces(text))
    assert "".join(pieces) == text
    assert all(len(piece.strip()) <= 8 for piece in pieces)


def test_a_request_without_facts_is_answered() -> None:
    """Such as a triage or a critique. The answer says that it knows nothing."""
    text = demo.play(ModelRequest(model=demo.NAME, messages=Messages.of([{"role": "user", "content": "Judge."}]))).text
    assert normalize_action(text).action is not None


def test_a_very_long_question_costs_little() -> None:
    """Of a text that its patterns would take minutes for, only the beginning is read."""
    for piece in ("a.", "1+", "((", "A ", "'", "x-", "1,1"):
        conversation = Conversation(piece * 50_000, [tool("search", "", query=TEXT)])
        begun = time.process_time()
        json.loads(conversation.reply().text)
        assert time.process_time() - begun < 5


THREE = "In the background: What is 17*23? What is 6*7? What is 2+2?"


@pytest.mark.parametrize("legacy", [False, True])
def test_one_subagent_for_each_part(legacy: bool) -> None:  # noqa: FBT001, a parameter of the test
    """All in one group, which the last one seals. Then it says that they have begun."""
    talk = Conversation(THREE, [], tasks=True, legacy=legacy)
    spawned = []
    for number in range(3):
        node, args = talk.decide()
        assert node == "task"
        spawned.append(TaskArgs.model_validate(args))
        talk.observe({"task_id": f"t{number}", "status": "running"})
    assert [task.query for task in spawned] == ["What is 17*23?", "What is 6*7?", "What is 2+2?"]
    assert len({task.group for task in spawned}) == 1
    assert [task.group_sealed for task in spawned] == [False, False, True]
    assert {task.mode for task in spawned} == {"subagent"}
    answer = talk.answer()
    assert "in the background" in answer
    assert all(f"- {task.query}" in answer for task in spawned)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("Find out in the background who wrote Faust", ["Find out who wrote Faust"]),
        ("In the background, what is 2+2 and what is 3+3?", ["what is 2+2", "what is 3+3?"]),
        ("Do this in the background: count ships; count trains", ["count ships", "count trains"]),
    ],
)
def test_its_parts(query: str, parts: list[str]) -> None:
    """A single part is in no group."""
    talk = Conversation(query, [], tasks=True)
    for part in parts:
        node, args = talk.decide()
        assert (node, args["query"]) == ("task", part)
        assert ("group" in args) == (len(parts) > 1)
        talk.observe({"task_id": "t"})
    assert talk.decide()[0] == "final_response"


def test_only_where_it_may_and_is_asked_to() -> None:
    """Else the question is any question."""
    assert Conversation(THREE, []).decide()[0] == "final_response"
    assert Conversation("What is the background of this?", [], tasks=True).decide()[0] == "final_response"


def test_what_it_waited_for_is_in_the_answer() -> None:
    """The person who confirmed the task kept the turn."""
    talk = Conversation("In the background: What is 6*7?", [], tasks=True)
    talk.decide()
    talk.observe({"task_id": "t", "results": [{"name": "What is 6*7?", "status": "succeeded", "result": "42"}]})
    assert talk.answer().startswith("- What is 6*7?: 42")


def test_a_refused_task_is_named() -> None:
    """No further one is spawned."""
    talk = Conversation(THREE, [], tasks=True)
    talk.decide()
    talk.observe({"task_id": "t"})
    talk.decide()
    talk.observe(Fault(code="too_many_tasks", reason="open tasks: at most 1"))
    answer = talk.answer()
    assert "17*23" in answer
    assert "Not begun: open tasks: at most 1" in answer


def test_a_report_names_the_results() -> None:
    """And names what failed."""
    tasks = [
        {"task_id": "a", "name": "product", "status": "succeeded", "result": "391"},
        {"task_id": "b", "name": "", "query": "who?", "status": "failed", "code": "tool_error"},
    ]
    talk = Conversation("Background work has ended.", [], cause="report", llm_context={"background_tasks": tasks})
    answer = talk.answer()
    assert "- product: 391" in answer
    assert "- who?: failed (tool_error)" in answer
