"""Images among the results of tools: which of them the model is shown in later calls."""

import base64
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from contracts.tools.messages import ToolSpec
from tests.planner.conftest import TEXT, Plan
from tests.planner.shown_images import SEEING, png, shown
from tests.support.model_server import ModelServer, action, answer
from tests.support.run_services import Handler
from tests.support.stores import Store

pytestmark = pytest.mark.timeout(60)
TRAILER = b"after the end of the image"


DRAWN = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "chart": {"type": "string", "format": "binary", "artifact": True}},
}


def drawing(body: bytes) -> tuple[ToolSpec, Handler]:
    """A tool that returns an image."""

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


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("sources", "count"), [(["charts"], 1), (["draw"], 1), (["other", "slow"], 1), (["chart"], 0), (["other"], 0)]
)
async def test_sources_are_names_and_tags(plan: Plan, provider: ModelServer, sources: list[str], count: int) -> None:
    """The log names the tools that match when the run begins; a tag that a tool loses later changes nothing."""
    provider.say(action("draw", q="x"), answer("Nice."))
    policy = {"enabled": True, "allowed_sources": sources}
    story = await (await plan({"draw": drawing(png(3))}, vision_context=policy, **SEEING)).tell("Draw.")
    assert [len(shown(seen)) for seen in provider.ledger] == [0, count]
    assert story.of("run_started")[0].vision_context.allowed_sources == ("draw",) * count


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


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "policy",
    [
        None,
        {"enabled": False, "allowed_sources": ["*"]},
        {"enabled": True},
        {"enabled": True, "allowed_sources": ["other"]},
        {"enabled": True, "allowed_sources": ["*"], "allow_mime_types": ["image/jpeg"]},
        {"enabled": True, "allowed_sources": ["*"], "max_total_bytes": 10},
    ],
)
async def test_images_of_tools_are_not_shown_otherwise(
    plan: Plan, provider: ModelServer, policy: dict[str, Any] | None
) -> None:
    """No policy, another tool, another type, too many bytes: nothing is shown."""
    provider.say(action("draw", q="x"), answer("Nice."))
    planner = await plan({"draw": drawing(png(3))}, agents={"default": {"vision_context": policy}}, **SEEING)
    assert (await planner.tell("Draw.")).end.raw_answer == "Nice."
    assert len(provider.ledger) == 2
    assert all(not shown(seen) for seen in provider.ledger)
