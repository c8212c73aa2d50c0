"""The demo model and background tasks: it spawns what a question plainly asks for, and says what came of it."""

import pytest

from contracts.runs.actions import TaskArgs
from contracts.wire.faults import Fault
from tests.support.demo_conversations import Conversation

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
