"""Images in whole runs: what a model is shown, what the log keeps, and models without vision."""

import base64
from typing import Any

import pytest

from tests.planner.conftest import Plan, Put
from tests.planner.shown_images import SEEING, png, shown
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.s3_servers import S3Server
from tests.support.stores import Store

pytestmark = pytest.mark.timeout(60)
BLIND = "openai/blind"


LOOKS = Say(text="I look.", tool_calls=[{"name": "look", "arguments": '{"q": "x"}'}])


@pytest.mark.parametrize(
    ("strategy", "replies", "answered"),
    [
        ("react", [action("look", q="x"), answer("A square.")], "A square."),
        ("chat", [LOOKS, Say(text=" A square.")], "I look. A square."),
    ],
)
async def test_every_call_of_the_model_sees_the_images(
    plan: Plan, provider: ModelServer, put: Put, strategy: Any, replies: list[Say], answered: str
) -> None:
    """In the first message of the user, in order, with the detail asked for; the log holds references alone."""
    provider.say(*replies)
    planner = await plan(**SEEING)
    refs = [await put(png(1), detail="low"), await put(png(2))]
    story = await planner.tell("What is this?", images=refs, strategy=strategy)
    assert story.end.raw_answer == answered
    assert len(provider.ledger) == 2
    for seen in provider.ledger:
        assert shown(seen) == [("user", png(1)), ("user", png(2))]
        first = next(message for message in seen.body["messages"] if message["role"] == "user")
        assert [part["image_url"].get("detail") for part in first["content"] if part["type"] == "image_url"] == [
            "low",
            None,
        ]
    log = "".join(event.model_dump_json() for event in story.events)
    assert refs[0].artifact_id in log
    assert base64.b64encode(png(1)).decode()[:40] not in log
    assert len(log) < 10_000


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("deployment", "agent", "request_says", "end"),
    [
        ("strict", "lenient", None, "done"),
        ("lenient", "strict", None, "vision_unsupported"),
        ("strict", "strict", "lenient", "done"),
        ("lenient", "lenient", "strict", "vision_unsupported"),
        ("strict", None, "lenient", "done"),
    ],
)
async def test_the_request_wins_over_the_agent_and_the_agent_over_the_deployment(
    plan: Plan, provider: ModelServer, put: Put, deployment: str, agent: str | None, request_says: str | None, end: str
) -> None:
    """Whether a run whose model does not see is refused, or goes on without its images."""
    provider.say(answer("I only read."))
    planner = await plan(agents={"default": {} if agent is None else {"vision": agent}}, vision=deployment)
    story = await planner.tell("What is this?", images=[await put(png(1))], vision=request_says)
    assert (story.end.type if story.end.type == "done" else story.end.code) == end
    assert [shown(seen) for seen in provider.ledger] == ([[]] if end == "done" else [])


async def test_an_image_that_is_gone_is_dropped_with_a_warning(
    plan: Plan, provider: ModelServer, put: Put, store: Store
) -> None:
    """Once, however often the model is asked."""
    provider.say(action("look", q="x"), answer("One square."))
    planner = await plan(**SEEING)
    kept, lost = await put(png(1)), await put(png(2), filename="lost.png")
    await store.client.delete("default", lost.artifact_id)
    story = await planner.tell("What are these?", images=[kept, lost])
    assert [shown(seen) for seen in provider.ledger] == [[("user", png(1))]] * 2
    assert story.end.warnings == ["image_dropped: lost.png: it is not stored any more"]
    assert "not available any more" in provider.ledger[0].text


async def test_the_store_is_waited_for(plan: Plan, provider: ModelServer, put: Put, s3: S3Server) -> None:
    """A run with images goes on once the S3 server is back; one without never notices."""
    provider.say(answer("Seen."), marker="with")
    provider.say(answer("Read."), marker="plain")
    planner = await plan(**SEEING)
    ref = await put(png(77))
    s3.kill()
    try:
        run = await planner.ask("with image", images=[ref])
        assert (await planner.tell("plain question")).end.raw_answer == "Read."
    finally:
        s3.start()
    assert (await planner.ended(run, 30)).end.raw_answer == "Seen."
