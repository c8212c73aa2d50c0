"""What listeners see of an answer: the chunks of the last attempt, joined, are the answer of the payload."""

import json

import pytest

from services.shared import metrics
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer, words


def final(args: object) -> Say:
    """A final response with these arguments."""
    return Say(text=json.dumps({"next_node": "final_response", "args": args}))


CASES: dict[str, tuple[list[Say], str, int]] = {
    "a long answer in small pieces": ([answer(words(300))], words(300), 1),
    "args before the node": ([Say(text='{"args": {"answer": "late"}, "next_node": "final_response"}')], "late", 1),
    "a list of lines": ([final(["one", "two"])], "one\ntwo", 1),
    "a number": ([final({"answer": 42})], "42", 1),
    "another key": ([final({"text": "hello"})], "hello", 1),
    "Python": ([Say(text="{'next_node': 'final_response', 'args': {'answer': 'hi'}}")], "hi", 1),
    "an encoded action": (
        [Say(text=json.dumps(json.dumps({"next_node": "final_response", "args": {"answer": "hi"}})))],
        "hi",
        1,
    ),
    "halves of a pair": (
        [Say(text='{"next_node": "final_response", "args": {"answer": "\\ud83d\\ude00 \\ud83d"}}', piece=3)],
        "😀 \ufffd",
        1,
    ),
    "a placeholder of an artifact": ([final({"answer": "<artifact:dict size=1KB>"})], "No answer produced.", 2),
    "broken, then right": (
        [Say(text='{"next_node": "final_response", "args": {"answer": "Hel'), answer("Hello")],
        "Hello",
        2,
    ),
    "text at last": ([Say(text="I only speak prose.")], "I only speak prose.", 3),
    "no answer, then its text": ([final({"confidence": 0.5}), Say(text="Here it is.", piece=3)], "Here it is.", 2),
    "no answer, then an action": ([final({}), answer("In JSON.")], "In JSON.", 2),
    "no answer, then thoughts and text": ([final({}), Say(text="<think>hm</think>So be it.")], "So be it.", 2),
    "no answer, then a call in prose": (
        [final({}), Say(text='Sure: {"next_node": "save", "args": {"answer": "CANARY"}}')],
        "No answer produced.",
        3,
    ),
    "no answer, then none": ([final({}), final({})], "No answer produced.", 2),
    "no answer, then a refusal": ([final({}), Say(status=400)], "No answer produced.", 2),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", CASES)
async def test_the_chunks_are_the_answer(plan: Plan, provider: ModelServer, case: str) -> None:
    """And no attempt shows what is taken back but those that were overtaken."""
    replies, expected, attempts = CASES[case]
    provider.say(*replies)
    story = await (await plan()).tell()
    reason = "no_path" if expected == "No answer produced." else "answer_complete"
    assert (story.end.type, story.end.reason, story.end.raw_answer) == ("done", reason, expected)
    assert story.shown() == expected
    assert len(story.of("asked")) == attempts
    assert "CANARY" not in "".join(chunk.text for chunk in story.of("chunk"))


async def test_an_answer_larger_than_a_record_is_cut(plan: Plan, provider: ModelServer) -> None:
    """A record has a megabyte. What is shown and what is stored are the same, and the warning says so."""
    provider.say(
        Say(text=json.dumps({"next_node": "final_response", "args": {"answer": words(110_000)}}), piece=60_000)
    )
    story = await (await plan()).tell()
    assert story.end.raw_answer == story.shown()
    assert words(110_000).startswith(story.end.raw_answer[:100_000])
    assert any("cut" in warning for warning in story.end.warnings)


async def test_thoughts_are_shown_beside_the_answer(plan: Plan, provider: ModelServer) -> None:
    """Native reasoning streams, is kept on the step, and is never needed."""
    provider.say(Say(text=action("look", q="x").text, reasoning="I should look."), answer("found"))
    story = await (await plan()).tell()
    thoughts = story.of("thinking")
    assert "".join(thought.text for thought in thoughts) == "I should look."
    assert thoughts[-1].done
    [step] = [step for step in story.of("step") if step.calls]
    assert (step.reasoning, step.thought) == ("I should look.", "I should look.")
    assert story.end.usage.reasoning_tokens > 0
    assert "I should look." not in provider.ledger[1].text


async def test_the_form_of_each_reply_is_told_and_counted(plan: Plan, provider: ModelServer) -> None:
    """By model: what a repair and a salvage were needed for, too."""
    model = "openai/forms"
    provider.say(
        Say(text="```json\n" + action("look", q="x").text + "\n```"),
        Say(text='{"next_node"'),
        *[Say(text="Just text.")] * 3,
    )
    planning = await plan(model=model)
    story = await planning.tell()
    forms = [step.form for step in story.of("step") if step.status == "started"]
    assert [(form.form, form.rules) for form in forms] == [
        ("unified", ["code_fence"]),
        ("text", ["salvaged", "repaired"]),
    ]
    counts = {
        sample.labels["form"]: sample.value
        for family in metrics.REPLY_FORMS.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and sample.labels["model"] == model
    }
    assert counts == {"unified": 1, "code_fence": 1, "invalid": 2, "text": 1, "salvaged": 1}
