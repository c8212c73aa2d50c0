"""Small calls beside the run's own: how hard is the question, and is the answer good enough."""

import json
from typing import Any

import pytest

from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer

JUDGED = {"judged": {"reflection": {"threshold": 0.7, "max_revisions": 1}}}
ONE, TWO = "openai/one", "openai/two"


def score(value: Any, feedback: str = "") -> Say:
    return Say(text=json.dumps({"score": value, "feedback": feedback}))


@pytest.mark.parametrize(
    ("triage", "effort"),
    [
        (Say(text='{"effort": "high"}'), "high"),
        (Say(text='```json\n{"effort": "low"}\n```'), "low"),
        (Say(text='{"effort": "enormous"}'), "medium"),
        (Say(text="I think it is hard."), "medium"),
        (Say(status=404), "medium"),
    ],
)
async def test_a_triage_picks_the_effort_once(plan: Plan, provider: ModelServer, triage: Say, effort: str) -> None:
    """By the model named for it; one that fails means medium, and never a failed run."""
    provider.say(triage, action("look", q="x"), answer("done"))
    declared = {"openai/scripted": True}
    story = await (await plan(reasoning_effort="auto", triage_model="openai/small", model_reasoning=declared)).tell()
    assert story.end.raw_answer == "done"
    assert [triaged.effort for triaged in story.of("triaged")] == [effort]
    assert [seen.body["model"] for seen in provider.ledger] == ["small", "scripted", "scripted"]
    assert story.end.usage.model_calls == (2 if triage.status == 404 else 3)


@pytest.mark.parametrize(("declared", "sent"), [({"openai/scripted": True}, "low"), ({}, None)])
async def test_an_effort_is_sent_to_a_model_that_is_declared_to_take_one(
    plan: Plan, provider: ModelServer, declared: dict[str, bool], sent: str | None
) -> None:
    """To another one it is not, and the run says so; nobody pays for a triage."""
    provider.say(answer("done"))
    planning = await plan(model_reasoning=declared, reasoning_effort="low" if sent else "auto")
    story = await planning.tell()
    assert [seen.body.get("reasoning_effort") for seen in provider.ledger] == [sent]
    assert ["RUNWIRE_MODEL_REASONING" in warning for warning in story.end.warnings] == ([] if sent else [True])


async def test_a_poor_answer_is_revised_within_bounds(plan: Plan, provider: ModelServer) -> None:
    """The model gets the reason, once; its second answer stands, with its score."""
    provider.say(answer("first"), score(0.1, "it is too short"), answer("second, longer"), score(0.3, "still short"))
    story = await (await plan(agents=JUDGED)).tell(agent="judged")
    assert story.end.raw_answer == story.shown() == "second, longer"
    assert story.end.confidence == 0.3
    [repaired] = story.of("repaired")
    assert (repaired.kind, repaired.reply) == ("revision", "first")
    assert "it is too short" in provider.ledger[2].text
    assert story.end.usage.model_calls == 4


@pytest.mark.parametrize(
    "critique",
    [Say(status=400), Say(text="Great!"), score(7), score("0.5"), Say(text='{"score": true}'), Say(text="{")],
)
async def test_a_critique_that_fails_leaves_the_answer_as_it_is(
    plan: Plan, provider: ModelServer, critique: Say
) -> None:
    """No score, no revision, no error."""
    provider.say(answer("fine", confidence=0.2), critique)
    story = await (await plan(agents=JUDGED)).tell(agent="judged")
    assert (story.end.raw_answer, story.end.confidence, story.of("repaired")) == ("fine", 0.2, [])


@pytest.mark.parametrize(
    "failing",
    [
        Say(status=400),
        Say(text='{"next_node": "final_response", "args": {"answer": "sec'),
        Say(text=answer("x").text, cut_after=9),
    ],
)
async def test_a_revision_that_does_not_come_leaves_the_answer(plan: Plan, provider: ModelServer, failing: Say) -> None:
    """With its score and a warning; it is shown again where something else was shown, and judged no further."""
    provider.say(answer("first", confidence=0.9), score(0.1, "too short"), failing)
    story = await (await plan(agents=JUDGED)).tell(agent="judged")
    assert (story.end.type, story.end.reason) == ("done", "answer_complete")
    assert story.shown() == story.end.raw_answer == "first"
    assert (story.end.confidence, story.end.extra) == (0.1, {"model_confidence": 0.9})
    assert "a better answer was asked for, and did not come" in story.end.warnings
    assert sum("You judge an answer" in seen.text for seen in provider.ledger) == 1
