"""What listeners see of an answer and its chunks, also if a reply ends too early; the text beside a tool's result."""

import json
from typing import Any

import pytest
from nats.aio.msg import Msg

from contracts.tools.messages import ToolCall, ToolSpec
from contracts.wire import subjects
from services.shared import metrics
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, Say, action, answer, words
from tests.support.run_services import Handler, Told


def final(args: object) -> Say:
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


TEXT = "Cold for the season."


async def weather(_: dict[str, Any]) -> Any:
    """A result, and what it means."""
    return Told(TEXT, {"celsius": 12})


WITH_TEXT: dict[str, tuple[ToolSpec, Handler]] = {**TOOLS, "weather": (ToolSpec(name="weather"), weather)}


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "stored"])
async def test_the_model_reads_the_text_beside_the_result(plan: Plan, provider: ModelServer, *, direct: bool) -> None:
    """The log keeps it with the outcome, however the call went."""
    provider.say(action("weather"), answer("Take a coat."))
    planning = await plan(tools=WITH_TEXT, direct=direct)
    if direct:
        await planning.calls_directly()
    story = await planning.tell()
    (observed,) = story.of("observed")
    assert (observed.observation, observed.content) == ({"celsius": 12}, TEXT)
    read = provider.ledger[-1].text
    assert TEXT in read
    assert read.index(TEXT) < read.index("celsius")


async def test_a_tool_learns_the_id_of_the_request(plan: Plan, provider: ModelServer) -> None:
    """The caller's, or the run's where the caller gave none."""
    seen: list[ToolCall] = []

    async def note(message: Msg) -> None:
        seen.append(ToolCall.model_validate_json(message.data))

    planning = await plan(tools=WITH_TEXT)
    await planning.bus.nc.subscribe(subjects.tool("weather"), cb=note)
    provider.say(*[action("weather"), answer("Take a coat.")] * 2)
    await planning.tell(request_id="req-789")
    run = (await planning.tell()).run
    assert [call.request_id for call in seen] == ["req-789", run]


WHOLE = "Boil the water. Warm the pot. Wait for four minutes."
PART = WHOLE[:40]
CUT_ACTION = answer(WHOLE).text[:75]
SPARE = "openai/spare"
BROKEN: list[dict[str, Any]] = [
    {"finish_reason": None, "done": False, "usage": None},
    {"finish_reason": "network_error"},
    {"finish_reason": "content_filter"},
    {"finish_reason": "length"},
]


def native(name: str, arguments: str, **more: Any) -> Say:
    return Say(tool_calls=[{"name": name, "arguments": arguments}], **{"finish_reason": "tool_calls", **more})


def plan_of(content: str, **more: Any) -> Say:
    """A native plan that answers directly."""
    return native("__planning__", json.dumps({"type": "direct_response", "content": content}), **more)


KINDS: dict[str, tuple[dict[str, Any], list[Say], str, Say]] = {
    "json": ({}, [], CUT_ACTION, answer(WHOLE)),
    "text_alone": ({}, [action("final_response")], PART, Say(text=WHOLE)),
    "native": ({"action_transport": "tools"}, [], PART, native("final_response", json.dumps({"answer": WHOLE}))),
    "planned": ({"strategy": "planned"}, [], PART, plan_of(WHOLE)),
}
"""Settings of the agent, replies before the cut one, the text that is cut, and the whole reply."""


@pytest.mark.sample(6)
@pytest.mark.parametrize("end", BROKEN, ids=lambda end: str(end["finish_reason"]))
@pytest.mark.parametrize("kind", KINDS)
async def test_a_cut_reply_is_asked_for_again(
    plan: Plan, provider: ModelServer, kind: str, end: dict[str, Any]
) -> None:
    """What was shown of it is replaced by the whole answer. One that stays cut is a part, and a warning says why."""
    agent, before, part, whole = KINDS[kind]
    planner = await plan(agents={"default": agent})
    provider.say(*before, Say(text=part, **end), whole)
    story = await planner.tell()
    assert story.shown() == story.end.raw_answer == WHOLE
    assert not [warning for warning in story.end.warnings if "cut" in warning]
    assert len(provider.ledger) == len(before) + 2
    provider.reset()
    provider.say(*before, Say(text=part, **end))
    story = await planner.tell()
    assert (story.end.type, story.end.route) == ("done", "partial")
    assert story.end.raw_answer
    assert WHOLE.startswith(story.end.raw_answer)
    assert story.shown() == story.end.raw_answer
    assert any(warning.startswith("the answer is cut: ") for warning in story.end.warnings)


@pytest.mark.parametrize(
    ("kind", "later"), [*((kind, None) for kind in KINDS), ("json", Say(status=503)), ("planned", Say(status=503))]
)
async def test_an_answer_that_breaks_for_good_keeps_what_was_shown(
    plan: Plan, provider: ModelServer, kind: str, later: Say | None
) -> None:
    """The run fails: no other text follows what listeners have. A text that was asked for alone ends in the middle."""
    agent, before, part, _ = KINDS[kind]
    broken = Say(text=part, cut_after=len(part) // 7, pause_s=0.01)
    provider.say(*before, broken, later or broken)
    story = await (await plan(agents={"default": agent})).tell()
    is_done = kind == "text_alone"
    payload = story.end if is_done else story.end.payload
    assert (story.end.type, payload.route) == (("done", "partial") if is_done else ("error", "error"))
    assert payload.raw_answer == "".join(chunk.text for chunk in story.chunks())
    assert WHOLE.startswith(payload.raw_answer)


async def test_the_next_model_answers_instead_of_one_that_breaks_off(plan: Plan, provider: ModelServer) -> None:
    """Once the retries are used up."""
    provider.say(Say(text=CUT_ACTION, finish_reason="abort", times=2), answer(WHOLE))
    story = await (await plan(max_provider_failures=1, fallback_models=[SPARE])).tell()
    assert [failed.then for failed in story.of("model_failed")] == ["retry", "fallback"]
    assert (story.end.raw_answer, story.end.route) == (WHOLE, None)


@pytest.mark.parametrize(
    ("agent", "whole"),
    [
        ({}, action("look", q="x")),
        ({"action_transport": "tools"}, native("look", '{"q": "x"}')),
        ({"strategy": "planned"}, plan_of(WHOLE)),
    ],
)
async def test_an_action_that_is_closed_needs_no_other_end(
    plan: Plan, provider: ModelServer, agent: dict[str, Any], whole: Say
) -> None:
    """Its last brace says that it is whole."""
    closed = Say(**{**vars(whole), "finish_reason": None, "done": False})
    provider.say(closed, answer(WHOLE))
    story = await (await plan(agents={"default": agent})).tell()
    assert story.end.raw_answer == WHOLE
    assert not story.of("model_failed")
    assert not story.of("repaired")


async def test_a_call_that_was_cut_behind_its_name_is_not_made(plan: Plan, provider: ModelServer) -> None:
    """It would be made without its arguments."""
    cut = native("fail", "", finish_reason="abort")
    provider.say(cut, native("final_response", json.dumps({"answer": WHOLE})))
    story = await (await plan(agents={"default": {"action_transport": "tools"}})).tell()
    assert (story.end.raw_answer, story.of("observed")) == (WHOLE, [])
