"""Images in whole runs: what a model is shown, what the log keeps, and models without vision."""

import asyncio
import base64
import json
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from contracts import keys
from contracts.ids import new_id
from contracts.images import ImageRef, ModelProfile
from contracts.tools import ToolSpec
from services.messaging.streams import provision
from services.planner.agents import parse_agents
from services.planner.conversation import compaction, images
from services.planner.effects.image_loader import DataUrl, ImageLoader
from services.planner.models import vision
from services.planner.models.wire import estimate
from services.shared.tool_catalogue import key_subject
from tests.planner.conftest import TEXT, Plan
from tests.support.buses import connected
from tests.support.model_server import ModelServer, Seen, action, answer
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stores import Store, serving
from tests.support.waiting import wait_until
from tests.support.whole import MODEL, Handler

pytestmark = pytest.mark.timeout(60)
BLIND = "openai/blind"
TRAILER = b"after the end of the image"
SEEING: dict[str, Any] = {"model_vision": {MODEL: True}}


def png(shade: int, size: int = 8) -> bytes:
    """A small grey square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([shade]) * size for _ in range(size))
    head = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The embedded S3 server."""
    with S3Server("rclone", tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture
async def store(s3: S3Server, nats_server: NatsServer) -> AsyncIterator[Store]:
    """An artifact store beside the planner's NATS."""
    async with connected(nats_server.url, "provisioner") as bus:
        await provision(bus)
    async with serving(s3, nats_server.url) as found:
        found.tenant = "default"
        yield found


Put = Callable[..., Awaitable[ImageRef]]


@pytest.fixture
def put(store: Store) -> Put:
    """Keeps an image as the gateway does."""

    async def keep(body: bytes, session: str | None = None, **more: Any) -> ImageRef:
        ref = await store.client.put("default", body, namespace="input_image", session=session)
        return ImageRef(artifact_id=ref.artifact_id, mime_type="image/png", **more)

    return keep


def shown(seen: Seen) -> list[tuple[str, bytes]]:
    """The images of a request to the model, each with the role of its message."""
    found = []
    for message in seen.body["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url":
                head, _, body = part["image_url"]["url"].partition(",")
                assert head.startswith("data:image/")
                found.append((message["role"], base64.b64decode(body)))
    return found


async def test_every_call_of_the_model_sees_the_images(plan: Plan, provider: ModelServer, put: Put) -> None:
    """In the first message of the user, in order, with the detail asked for; the log holds references alone."""
    provider.say(action("look", q="x"), answer("A square."))
    planner = await plan(**SEEING)
    refs = [await put(png(1), detail="low"), await put(png(2))]
    story = await planner.tell("What is this?", images=refs)
    assert story.end.raw_answer == "A square."
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


async def test_a_model_that_does_not_see_is_refused(plan: Plan, put: Put, provider: ModelServer) -> None:
    """Strict is the default."""
    planner = await plan()
    story = await planner.tell("What is this?", images=[await put(png(1))])
    assert (story.end.type, story.end.code) == ("error", "vision_unsupported")
    assert "RUNWIRE_VISION=lenient" in story.end.error
    assert not provider.ledger


async def test_a_lenient_deployment_drops_images_and_says_so(plan: Plan, provider: ModelServer, put: Put) -> None:
    """The model is asked without them."""
    provider.say(answer("I only read."))
    story = await (await plan(vision="lenient")).tell("What is this?", images=[await put(png(1)), await put(png(2))])
    assert story.end.raw_answer == "I only read."
    assert [warning for warning in story.end.warnings if warning.startswith("image_dropped: 2 of the question")]
    assert shown(provider.ledger[0]) == []


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


async def test_a_deleted_image_is_shown_no_more(plan: Plan, provider: ModelServer, put: Put, store: Store) -> None:
    """Not even by a planner that has just shown it: the tool of the run deletes it between two calls of the model."""
    kept, doomed = await put(png(1)), await put(png(2), filename="doomed.png")

    async def delete(_: dict[str, Any]) -> Any:
        await store.client.delete("default", doomed.artifact_id)
        return {"deleted": True}

    provider.say(action("forget", q="x"), answer("One is left."))
    spec = ToolSpec(name="forget", description="Forget.", input_schema=TEXT)
    story = await (await plan({"forget": (spec, delete)}, **SEEING)).tell("What are these?", images=[kept, doomed])
    assert [shown(seen) for seen in provider.ledger] == [[("user", png(1)), ("user", png(2))], [("user", png(1))]]
    assert story.end.warnings == ["image_dropped: doomed.png: it is not stored any more"]


async def test_an_image_of_another_session_is_refused(plan: Plan, provider: ModelServer, put: Put) -> None:
    """Also where nobody asked the gateway, and after its own session has seen it."""
    provider.say(answer("A square."))
    planner = await plan(**SEEING)
    ref = await put(png(1), session="mine")
    assert (await planner.tell("What is this?", images=[ref], session_id="mine")).end.raw_answer == "A square."
    for elsewhere in ({"session_id": "other"}, {}):
        end = (await planner.tell("What is this?", images=[ref], **elsewhere)).end
        assert (end.type, end.code) == ("error", "bad_request")
        assert "belongs to another session" in end.error
    assert len(provider.ledger) == 1


async def test_images_leave_the_cache(store: Store, put: Put, nats_server: NatsServer) -> None:
    """When they have not been shown for a while, when they are gone, and when there are too many."""
    ref = await put(png(5))
    part = images.image_part(ref)
    async with connected(nats_server.url, "planner") as bus:
        pictures = ImageLoader(bus, cached_s=0.2)
        await pictures.filled("default", new_id(), None, [{"role": "user", "content": [part]}])
        assert pictures._size > 0
        await wait_until(lambda: not pictures._known and not pictures._size, what="the image has left the cache")
        pictures = ImageLoader(bus)
        await pictures.filled("default", new_id(), None, [{"role": "user", "content": [part, part]}])
        assert len(pictures._known) == 1
        await store.client.delete("default", ref.artifact_id)
        _, warnings = await pictures.filled("default", new_id(), None, [{"role": "user", "content": [part]}])
        assert (len(warnings), pictures._known, pictures._size) == (1, {}, 0)


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


async def test_fallbacks_and_choices_are_those_that_see(plan: Plan, provider: ModelServer, put: Put) -> None:
    """A question with images is never given to a model that would not see them."""
    provider.say(answer("Seen."))
    agents = {"default": {"models": [BLIND, MODEL], "fallbacks": [BLIND]}}
    story = await (await plan(agents=agents, **SEEING)).tell("What is this?", images=[await put(png(1))])
    started = story.of("run_started")[0]
    assert (started.model, started.models, started.fallbacks) == (MODEL, [MODEL], [])
    assert story.end.raw_answer == "Seen."


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


async def test_an_image_of_a_tool_that_is_broken_is_named_in_the_payload(
    plan: Plan, provider: ModelServer, store: Store
) -> None:
    """The run goes on without it."""
    _ = store
    provider.say(action("draw", q="x"), answer("Nice."))
    policy = {"enabled": True, "allowed_sources": ["*"]}
    story = await (await plan({"draw": drawing(png(3, 64)[:200])}, vision_context=policy, **SEEING)).tell("Draw.")
    (warning,) = story.end.warnings
    assert warning.startswith("image_dropped: chart of draw: it is damaged")
    assert story.end.artifacts == {}
    assert all(not shown(seen) for seen in provider.ledger)


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
async def test_images_of_tools_stay_away_otherwise(
    plan: Plan, provider: ModelServer, policy: dict[str, Any] | None
) -> None:
    """No policy, another tool, another type, too many bytes: nothing is shown."""
    provider.say(action("draw", q="x"), answer("Nice."))
    planner = await plan({"draw": drawing(png(3))}, agents={"default": {"vision_context": policy}}, **SEEING)
    assert (await planner.tell("Draw.")).end.raw_answer == "Nice."
    assert len(provider.ledger) == 2
    assert all(not shown(seen) for seen in provider.ledger)


async def test_the_rehearsal_says_what_it_was_given(plan: Plan, put: Put) -> None:
    """It takes images, and does not claim to see them."""
    planner = await plan(model="builtin/rehearsal")
    story = await planner.tell("What is this?", images=[await put(png(1))])
    assert f"I was given an image (image/png of {len(png(1))} bytes), and cannot see" in story.end.raw_answer


def test_an_image_counts_as_an_image() -> None:
    """Not as its bytes; older results lose theirs when the conversation is shortened, the question keeps its own."""
    ref = ImageRef(artifact_id="0" * 32, mime_type="image/png")
    message: dict[str, Any] = {"role": "user", "content": images.with_images("What?", [ref])}
    assert compaction.length(message) == len("What?") + images.CHARACTERS_PER_IMAGE
    later: dict[str, Any] = {
        "role": "user",
        "content": [{"type": "text", "text": "See:"}, {"type": "image", "inline": "A" * 40_000, "name": "x"}],
    }
    said: list[dict[str, Any]] = [
        message,
        {"role": "assistant", "content": "a"},
        later,
        {"role": "assistant", "content": "b"},
    ]
    short = compaction.compacted(said, 200)
    assert short[0] == message
    assert short[2]["content"] == f"See:\n{images.LEFT_OUT}"
    hydrated = [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 40_000}}],
        }
    ]
    assert estimate(hydrated, "", "")["prompt_tokens"] < 2000


async def test_a_tool_cannot_show_the_model_an_artifact_of_another_run(
    plan: Plan, provider: ModelServer, put: Put
) -> None:
    """A reference in a result is only a shape: it grants nothing."""
    ref = await put(png(9))
    forged = {"artifact_id": ref.artifact_id, "mime_type": "image/png", "size": len(png(9)), "sha256": "0" * 64}
    spec = ToolSpec(
        name="draw", description="Draw.", output_schema={"type": "object", "properties": {"chart": {"artifact": True}}}
    )

    async def draw(_: dict[str, Any]) -> Any:
        return {"chart": forged}

    provider.say(action("draw"), answer("Nothing to see."))
    policy = {"enabled": True, "allowed_sources": ["*"]}
    story = await (await plan({"draw": (spec, draw)}, vision_context=policy, **SEEING)).tell("Draw.")
    assert story.end.type == "done"
    assert all(not shown(seen) for seen in provider.ledger)


async def test_images_arrive_in_the_form_of_other_providers(
    plan: Plan, provider: ModelServer, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude takes them as sources of its own; which models see comes from LiteLLM's table here."""
    monkeypatch.setenv("ANTHROPIC_API_BASE", provider.root)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up")
    provider.say(answer("Seen."))
    story = await (await plan(model="anthropic/claude-sonnet-4-5")).tell("What is this?", images=[await put(png(1))])
    assert story.end.raw_answer == "Seen."
    (first,) = (message for message in provider.ledger[0].body["messages"] if message["role"] == "user")
    (image,) = (part for part in first["content"] if part["type"] == "image")
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png(1)).decode()}


def test_who_prints_a_request_sees_no_bytes() -> None:
    """A URL with an image in it shows its type and size."""
    url = DataUrl("data:image/png;base64," + base64.b64encode(png(1)).decode())
    assert repr({"url": url}) == f"{{'url': <image image/png {len(png(1))} bytes>}}"
    assert json.loads(json.dumps({"url": url}))["url"] == url


async def test_profiles_stand_in_the_catalogue(plan: Plan, tmp_path: Path) -> None:
    """Of every model that the planner uses, with its agents; what is declared wins over LiteLLM's table."""
    _ = tmp_path
    agents = parse_agents({"painter": {"model": MODEL}, "writer": {"model": BLIND, "vision": "lenient"}})
    sights = vision.VisionSupport(lambda model: model == BLIND, {MODEL: True, BLIND: False})
    found = {profile.model: profile for profile in vision.profiles(sights, agents, MODEL, ["openai/other"])}
    assert found[MODEL] == ModelProfile(
        model=MODEL, images="seen", agents=["default", "painter"], vision={"writer": "lenient"}
    )
    assert found[BLIND] == ModelProfile(model=BLIND, images="refused", agents=["writer"], vision={"writer": "lenient"})
    assert found["openai/other"].images == "refused"
    planner = await plan()
    name = f"openai/{new_id()}"
    publishing = asyncio.create_task(vision.publish(planner.bus, [ModelProfile(model=name, images="dropped")]))
    try:

        async def is_there() -> bool:
            kept = await planner.bus.last("KV_catalogue", key_subject(keys.model_key(name)))
            return kept is not None and ModelProfile.model_validate_json(kept.data).images == "dropped"

        await wait_until(is_there, what="the profile is in the catalogue")
    finally:
        publishing.cancel()
