"""Whole runs that people add to, over a real nats-server and a scripted provider: steering, replies, rules on texts."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.planner.conftest import Plan
from tests.planner.test_runs_pauses import paying
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning, tools_at_work

QUESTION = Say(text='{"next_node": "final_response", "args": {"answer": "Which one?", "requires_followup": true}}')


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    """A provider of each test's own: what was released stays so."""
    with ModelServer() as running:
        yield running


async def test_the_reply_to_a_question_of_the_model(plan: Plan, provider: ModelServer) -> None:
    """An agent with `followup: pause` waits for it; the run goes on with it."""
    planner = await plan(agents={"default": {"followup": "pause"}})
    provider.say(QUESTION, answer("The red one then."))
    run = await planner.ask()
    [pause] = await planner.paused(run)
    assert (pause.source, pause.title, pause.payload) == ("planner", "Which one?", {"answer": "Which one?"})
    assert (await planner.add(run, "the red one")).code is None
    story = await planner.ended(run)
    assert (story.end.raw_answer, story.shown()) == ("The red one then.", "The red one then.")
    assert "the red one" in provider.ledger[1].text
    provider.reset()
    provider.say(QUESTION)
    run = await planner.ask()
    [pause] = await planner.paused(run)
    assert (await planner.decide(pause, run, "reject")).code is None
    assert (await planner.ended(run)).end.raw_answer == "Which one?"


async def test_rules_on_texts(plan: Plan, provider: ModelServer) -> None:
    """A question may be refused or wait for a person; an input alone is refused without harm to the run."""
    rules = [
        {"name": "cards", "text": r"\d{4} \d{4} \d{4} \d{4}", "action": "refuse"},
        {"name": "law", "text": "(?i)lawyer", "action": "pause", "title": "Answer this?"},
    ]
    planner = await plan(agents={"default": {"input_rules": rules}})
    story = await planner.tell("My card is 4111 1111 1111 1111")
    assert (story.end.type, story.end.code) == ("error", "input_refused")
    assert provider.ledger == []
    provider.say(answer("yes"))
    run = await planner.ask("Do I need a lawyer?")
    [pause] = await planner.paused(run)
    assert (pause.reason, pause.source, pause.title) == ("approval", "policy", "Answer this?")
    assert (await planner.add(run, "4111 1111 1111 1111")).code == "input_refused"
    assert (await planner.decide(pause, run, "approve")).code is None
    assert (await planner.ended(run)).end.raw_answer == "yes"
    run = await planner.ask("Do I need a lawyer?")
    [pause] = await planner.paused(run)
    await planner.decide(pause, run, "reject", note="ask them yourself")
    story = await planner.ended(run)
    assert (story.end.type, story.end.code) == ("error", "input_refused")
    assert "ask them yourself" in story.end.error
    assert len(provider.ledger) == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("moment", ["before", "stored", "known"])
@pytest.mark.parametrize("what", ['"type":"input_added"', '"type":"observed"'], ids=["the input", "what reads it"])
async def test_a_planner_killed_between_an_input_and_the_next_decision(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, what: str, moment: str
) -> None:
    """The input is taken once, and the model reads it once, whichever record was the last one of that planner."""
    url, paid = own_nats_server.url, list[object]()
    provider.say(action("pay", sum=5), answer("so be it"))
    async with planning(url, provider) as planner, tools_at_work(planner, url, paying(paid)):
        run = await client.ask()
        [pause] = await client.paused(run)
    dying = DyingPlanner(url, provider.url, what, moment)
    adding = asyncio.create_task(client.add(run, "something else", redirect=True))
    await dying.dead()
    async with planning(url, provider) as planner, tools_at_work(planner, url, paying(paid)):
        story = await planner.ended(run, 60)
        assert (await adding).code is None
    assert story.end.raw_answer == "so be it"
    assert [added.text for added in story.of("input_added")] == ["something else"]
    assert provider.ledger[-1].text.count("something else") >= 1
    assert [(resumed.decision, resumed.pause_id) for resumed in story.of("resumed")] == [("reject", pause.pause_id)]
    assert paid == []
