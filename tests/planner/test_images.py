"""Images in whole runs, of callers and tools: what a model is shown, what the log keeps, and models without vision."""

import base64
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from contracts.tools.messages import ToolSpec
from tests.planner.conftest import TEXT, Plan, Put
from tests.planner.shown_images import SEEING, png, shown
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.run_services import Handler
from tests.support.s3_servers import S3Server
from tests.support.stores import Store

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


async def test_the_store_is_waited_for(plan: Plan, provider: ModelServer, put: Put, rclone: S3Server) -> None:
    """A run with images goes on once the S3 server is back; one without never notices."""
    provider.say(answer("Seen."), marker="with")
    provider.say(answer("Read."), marker="plain")
    planner = await plan(**SEEING)
    ref = await put(png(77))
    rclone.kill()
    try:
        run = await planner.ask("with image", images=[ref])
        assert (await planner.tell("plain question")).end.raw_answer == "Read."
    finally:
        rclone.start()
    assert (await planner.ended(run, 30)).end.raw_answer == "Seen."


TRAILER = b"after the end of the image"


DRAWN = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "chart": {"type": "string", "format": "binary", "artifact": True}},
}


def drawing(body: bytes) -> tuple[ToolSpec, Handler]:
    async def draw(_: dict[str, Any]) -> Any:
        return {"title": "chart", "chart": base64.b64encode(body).decode()}

    spec = ToolSpec(
        name="draw",
        description="Draw.",
        input_schema=TEXT,
        output_schema=DRAWN,
        idempotent=True,
        tags=["charts", "slow"],
    )
    return spec, draw


@pytest.mark.parametrize("size", [8, 300])
async def test_images_of_tools_flow_into_later_calls_where_the_policy_lets_them(
    plan: Plan, provider: ModelServer, store: Store, size: int
) -> None:
    """Small ones in the message and large ones that were stored; each once, within the limits, from allowed tools."""
    _ = store
    provider.say(action("draw", q="x"), action("draw", q="y"), answer("Nice."))
    policy = {"enabled": True, "max_images": 1, "allowed_sources": ["draw"]}
    body = png(3, size) + TRAILER
    planner = await plan({"draw": drawing(body)}, vision_context=policy, **SEEING)
    story = await planner.tell("Draw something.")
    assert story.end.raw_answer == "Nice."
    first, *later = (shown(seen) for seen in provider.ledger)
    ((role, seen_by_model),) = later[0]
    assert (first, later[1], role) == ([], later[0], "user")
    assert Image.open(BytesIO(seen_by_model)).tobytes() == Image.open(BytesIO(body)).tobytes()
    assert TRAILER not in seen_by_model, "images of tools are cleaned"


POLICIES: list[tuple[dict[str, Any] | None, bool, int]] = [
    (None, False, 0),
    ({"enabled": False, "allowed_sources": ["*"]}, False, 0),
    ({}, False, 0),
    ({"allowed_sources": ["other"]}, False, 0),
    ({"allowed_sources": ["chart"]}, False, 0),
    ({"allowed_sources": ["*"], "allow_mime_types": ["image/jpeg"]}, True, 0),
    ({"allowed_sources": ["*"], "max_total_bytes": 10}, True, 0),
    ({"allowed_sources": ["draw"]}, True, 1),
    ({"allowed_sources": ["other", "slow"]}, True, 1),
]
"""Of images of tools, whether the tool is allowed, and how many images are shown."""


@pytest.mark.sample(4)
@pytest.mark.parametrize(("policy", "is_allowed", "count"), POLICIES)
async def test_a_policy_names_tools_or_their_tags(
    plan: Plan, provider: ModelServer, policy: dict[str, Any] | None, *, is_allowed: bool, count: int
) -> None:
    """The log names the tools that match when the run begins; a tag that a tool loses later changes nothing."""
    provider.say(action("draw", q="x"), answer("Nice."))
    policy = None if policy is None else {"enabled": True, **policy}
    planner = await plan({"draw": drawing(png(3))}, agents={"default": {"vision_context": policy}}, **SEEING)
    story = await planner.tell("Draw.")
    assert story.end.raw_answer == "Nice."
    assert [len(shown(seen)) for seen in provider.ledger] == [0, count]
    resolved = story.of("run_started")[0].vision_context
    assert (resolved is not None and "draw" in resolved.allowed_sources) == is_allowed
