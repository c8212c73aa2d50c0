"""Images of runs, with a real store behind the gateway: the references in the request, and the stored bytes."""

import asyncio
import hashlib
from io import BytesIO
from typing import Any

import httpx
import pytest
from PIL import Image, PngImagePlugin

from contracts.artifacts import INPUT_IMAGE, ImageInput, ImageRef, ModelProfile
from contracts.runs.requests import RunInput, RunRequested
from contracts.wire import keys
from contracts.wire.names import image_id, new_id, run_id_for_key
from services.messaging.connection import Bus
from tests.support.catalogue import key_subject
from tests.support.gateways import Served, assert_unavailable, requested, serving
from tests.support.images import CANARY, FORMATS, TEXTS, animated, corners, data_url, drawn, encoded, with_metadata
from tests.support.nats_server import NatsServer
from tests.support.stores import Store
from tests.support.waiting import wait_until

UPRIGHT = ["red", "lime", "blue", "white"]
DATA = "data:image/png;base64,"


async def ask(http: httpx.AsyncClient, *images: dict[str, Any], key: str | None = None, **more: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return await http.post("/v1/runs", json={"query": "what is it?", "images": images, **more}, headers=headers)


def sent(data: bytes, kind: str = "png") -> dict[str, Any]:
    """An image in the question itself."""
    return {"data": data_url(data, f"image/{kind}")}


async def uploaded(http: httpx.AsyncClient, data: bytes | None = None, **params: str) -> dict[str, Any]:
    """An image that was stored before, by its id."""
    answer = await http.post("/v1/artifacts", content=data or with_metadata("png"), params=params)
    return {"artifact_id": answer.json()["artifact_id"]}


async def accepted(bus: Bus, answer: httpx.Response) -> RunRequested:
    assert answer.status_code == 202, answer.text
    return await requested(bus, answer.json()["run_id"])


async def bytes_of(store: Store, image: ImageRef) -> bytes:
    return (await store.client.read("default", image.artifact_id, limit=1 << 24))[1]


async def shown(served: Served, bus: Bus, image: dict[str, Any], **more: Any) -> ImageRef:
    """The one image of a run that asks with it."""
    (ref,) = (await accepted(bus, await ask(served.http, image, **more))).images
    return ref


def refused(answer: httpx.Response, code: str, field: str) -> str:
    """What is wrong with the image, as the answer says it."""
    body = answer.json()
    assert (answer.status_code, body["code"], body["errors"][0]["field"]) == (422, code, field), answer.text
    return str(body["errors"][0]["message"])


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("way", ["data", "upload", "form"])
async def test_an_image_is_stored_without_metadata(served: Served, store: Store, bus: Bus, kind: str, way: str) -> None:
    """As a data URL, as an upload, as the file of a form: the run has a reference to its pixels alone."""
    data, session, mime_type = with_metadata(kind), new_id(), f"image/{kind}"
    assert [text for text in TEXTS if text.encode() in data], "the test shows something"
    match way:
        case "data":
            image = {**sent(data, kind), "filename": f"holiday.{kind}"}
        case "upload":
            image = await uploaded(served.http, data, filename=f"holiday.{kind}")
        case _:
            stored = await served.http.post("/v1/artifacts", files={"file": (f"holiday.{kind}", data, mime_type)})
            image = {"artifact_id": stored.json()["artifact_id"]}

    request = await accepted(bus, await ask(served.http, {**image, "detail": "low"}, session_id=session))

    (ref,) = request.images
    assert (ref.mime_type, ref.filename, ref.detail) == (mime_type, f"holiday.{kind}", "low")
    kept = await bytes_of(store, ref)
    head = await store.client.head("default", ref.artifact_id)
    assert corners(kept) == UPRIGHT
    assert not [text for text in TEXTS if text.encode() in kept]
    assert (head.session_id, head.run_id) == (session, request.run_id)
    assert (head.ref.namespace, head.ref.expires_at) == (INPUT_IMAGE, None)
    assert ref.artifact_id == image_id(request.run_id, 0, hashlib.sha256(kept).hexdigest())
    assert len(request.model_dump_json()) < 1000


@pytest.mark.sample(6)
@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
async def test_an_image_is_stored_upright(served: Served, store: Store, bus: Bus, kind: str, orientation: int) -> None:
    """As a camera wanted it to be shown; models do not read EXIF."""
    ref = await shown(served, bus, sent(with_metadata(kind, orientation), kind))
    seen = {2: "lrwb", 3: "bwrl", 4: "wblr", 5: "rwbl", 6: "wrlb", 7: "blrw", 8: "lbwr"}.get(orientation, "rlbw")
    assert [corner[0] for corner in corners(await bytes_of(store, ref))] == list(seen)


@pytest.mark.parametrize("kind", ["png", "webp", "gif"])
async def test_of_an_animation_the_first_frame_is_kept(served: Served, store: Store, bus: Bus, kind: str) -> None:
    """Models see one."""
    kept = await bytes_of(store, await shown(served, bus, sent(animated(kind), kind)))
    assert corners(kept) == UPRIGHT
    with Image.open(BytesIO(kept)) as image:
        assert getattr(image, "n_frames", 1) == 1


async def test_pixels_stay_as_they_are(served: Served, store: Store, bus: Bus) -> None:
    """Of modes that need care: transparency, palettes, sixteen bits, grey; and a lossy WebP is not compressed again."""
    clear = drawn().convert("RGBA")
    clear.putpixel((0, 0), (1, 2, 3, 0))
    paletted = clear.convert("P")
    paletted.info["transparency"] = 3
    deep = Image.new("I;16", (9, 7), 40_000)
    drawings = [("png", each) for each in (clear, paletted, deep, drawn().convert("1"), drawn().convert("LA"))]
    drawings += [("gif", paletted), ("jpeg", drawn().convert("L")), ("webp", clear)]
    images = [(kind, encoded(image, kind)) for kind, image in drawings]
    answer = await ask(served.http, *(sent(data, kind) for kind, data in images))
    for ref, (kind, data) in zip((await accepted(bus, answer)).images, images, strict=True):
        with Image.open(BytesIO(await bytes_of(store, ref))) as kept, Image.open(BytesIO(data)) as given:
            assert kept.mode == given.mode
            if kind != "jpeg":
                assert kept.convert("RGBA").tobytes() == given.convert("RGBA").tobytes(), (kind, given.mode)


async def test_an_image_with_large_text_metadata_is_accepted(served: Served, store: Store, bus: Bus) -> None:
    """Drawing programs store their document as compressed text, larger than the image itself."""
    info = PngImagePlugin.PngInfo()
    info.add_text("document", CANARY * 400_000, zip=True)
    info.add_itxt("drawing", CANARY * 400_000, zip=True)
    ref = await shown(served, bus, sent(encoded(drawn(), "png", pnginfo=info)))
    with Image.open(BytesIO(await bytes_of(store, ref))) as kept:
        assert (kept.tobytes(), kept.info) == (drawn().tobytes(), {})


async def test_colours_for_print_become_those_of_screens(served: Served, store: Store, bus: Bus) -> None:
    """A JPEG of four inks."""
    kept = await bytes_of(store, await shown(served, bus, sent(encoded(drawn().convert("CMYK"), "jpeg"), "jpeg")))
    with Image.open(BytesIO(kept)) as image:
        assert image.mode == "RGB"
    assert corners(kept) == UPRIGHT


async def test_an_image_that_came_in_before_is_taken_as_it_is(served: Served, store: Store, bus: Bus) -> None:
    """Nothing is read and stored again, and uploads cannot use the namespace of input images."""
    first = await shown(served, bus, sent(with_metadata("png")))
    again = await shown(served, bus, {"artifact_id": first.artifact_id, "detail": "high"})
    assert (again.artifact_id, again.detail) == (first.artifact_id, "high")
    forged = await served.http.post("/v1/artifacts", content=with_metadata("png"), params={"namespace": INPUT_IMAGE})
    refused(forged, "invalid_input", "namespace")
    # A tool of that name: what it returned is a result, and was never cleaned.
    result = await store.client.put("default", with_metadata("png"), namespace=INPUT_IMAGE, json_type="bytes")
    cleaned = await shown(served, bus, {"artifact_id": result.artifact_id})
    assert cleaned.artifact_id != result.artifact_id


async def test_a_repeated_question_stores_nothing_twice(served: Served, store: Store, bus: Bus) -> None:
    """One after another, and many at once; another image under the same key is a conflict."""
    key, image = f"key-{new_id()}", sent(encoded(drawn((61, 43)), "png"))
    answers = await asyncio.gather(*(ask(served.http, image, key=key) for _ in range(6)))
    answers.append(await ask(served.http, image, key=key))
    assert {answer.content for answer in answers} == {answers[0].content}
    run = run_id_for_key("default", key)
    assert (await accepted(bus, answers[0])).run_id == run
    assert len((await store.client.list("default", run=run)).artifacts) == 1
    other = await ask(served.http, sent(encoded(drawn((20, 20)), "png")), key=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert len((await store.client.list("default", run=run)).artifacts) == 1, "nothing of the other one is kept"


async def test_an_image_of_a_session_is_shown_in_that_session_alone(served: Served, store: Store, bus: Bus) -> None:
    """Uploaded, or stored by a run of the session. An image without a session is shown in every run of its tenant."""
    mine, other = f"s-{new_id()}", f"s-{new_id()}"
    image = await uploaded(served.http, session_id=mine)
    for elsewhere in ({"session_id": other}, {}):
        reason = refused(await ask(served.http, image, **elsewhere), "invalid_input", "images.0.artifact_id")
        assert "belongs to another session" in reason
        assert mine not in reason
    kept = await shown(served, bus, image, session_id=mine)
    again = {"artifact_id": kept.artifact_id}
    assert await shown(served, bus, again, session_id=mine) == kept
    refused(await ask(served.http, again, session_id=other), "invalid_input", "images.0.artifact_id")
    chat = await served.http.post("/chat", json={"query": "?", "images": [image], "session_id": other})
    refused(chat, "invalid_input", "images.0.artifact_id")

    image = await uploaded(served.http)
    for everywhere in ({"session_id": mine}, {"session_id": other}, {}):
        copied = await shown(served, bus, image, **everywhere)
        assert (await store.client.head("default", copied.artifact_id)).session_id == everywhere.get("session_id")


@pytest.mark.usefixtures("store")
async def test_a_deleted_image_is_not_confirmed_to_a_cache(served: Served) -> None:
    """Caches have to ask each time, and hear that there is nothing; nor can it be shown again."""
    image = await uploaded(served.http)
    url = f"/v1/artifacts/{image['artifact_id']}"
    whole = await served.http.get(url)
    assert whole.headers["cache-control"] == "private, no-cache"
    tag = {"If-None-Match": whole.headers["etag"]}
    assert (await served.http.get(url, headers=tag)).status_code == 304
    assert (await served.http.delete(url)).status_code == 204
    assert (await served.http.get(url, headers=tag)).status_code == 404
    refused(await ask(served.http, image), "invalid_input", "images.0.artifact_id")


async def profile(bus: Bus, **fields: Any) -> None:
    said = ModelProfile(**fields)
    await bus.publish(key_subject(keys.model_key(said.model)), said.model_dump_json().encode(), {"Nats-TTL": "60s"})


@pytest.mark.usefixtures("store")
async def test_images_for_a_model_that_does_not_see_them(served: Served, bus: Bus) -> None:
    """422 before anything is stored. An unknown model passes, and so does a repeated request of an accepted run."""
    await profile(bus, model="x/blind:1", images="refused", agents=["unseeing"])
    await profile(bus, model="x/seeing", images="seen", agents=["painter"])
    await profile(bus, model="x/lenient", images="dropped", agents=["easy"])
    await profile(bus, model="x/late", images="seen", agents=["mixed"])
    await profile(bus, model="x/early", images="refused", agents=["mixed"])
    image = sent(with_metadata("png"))

    async def is_refused(**choice: str) -> bool:
        return (await ask(served.http, image, **choice)).status_code == 422

    await wait_until(lambda: is_refused(model="x/early"), what="the gateway has read the last of them")
    for choice in ({"model": "x/blind:1"}, {"agent": "unseeing"}, {"model": "x/blind:1", "agent": "painter"}):
        answer = await ask(served.http, image, **choice)
        assert (answer.status_code, answer.json()["code"]) == (422, "vision_unsupported"), choice
        assert "x/blind:1" in answer.json()["detail"]
        assert "RUNWIRE_MODEL_VISION" in answer.json()["detail"]
        assert (await ask(served.http, **choice)).status_code == 202, "without images it may answer"
    for choice in ({"model": "x/seeing"}, {"model": "x/lenient"}, {"agent": "mixed"}, {"agent": "nobody"}):
        assert (await ask(served.http, image, **choice)).status_code == 202, choice

    vision = {"kind": "lenient", "strict": "strict"}
    await profile(bus, model="x/short", images="refused", agents=["kind"], vision=vision)
    await profile(bus, model="x/lenient", images="dropped", agents=["easy"], vision=vision)
    await wait_until(lambda: is_refused(agent="easy", vision="strict"), what="and of these")
    for choice in (
        {"model": "x/short", "agent": "kind"},
        {"agent": "kind"},
        {"agent": "unseeing", "vision": "lenient"},
    ):
        assert (await ask(served.http, image, **choice)).status_code == 202, choice
    for choice in (
        {"agent": "kind", "vision": "strict"},
        {"agent": "easy", "vision": "strict"},
        {"model": "x/lenient", "agent": "strict"},
    ):
        assert (await ask(served.http, image, **choice)).status_code == 422, choice
    request = await accepted(bus, await ask(served.http, image, model="x/short", vision="lenient"))
    assert request.vision == "lenient"
    assert refused(await ask(served.http, vision="blurred"), "invalid_input", "vision")

    chat = await served.http.post("/chat", json={"query": "?", "images": [image], "agent": "unseeing"})
    assert (chat.status_code, chat.json()["code"]) == (422, "vision_unsupported")

    key = f"key-{new_id()}"
    first = await ask(served.http, image, key=key, model="x/seeing")
    await profile(bus, model="x/seeing", images="refused")
    assert (await ask(served.http, image, key=key, model="x/seeing")).content == first.content
    await bus.publish(key_subject(keys.model_key("x/blind:1")), b"", {"KV-Operation": "DEL"})
    assert (await ask(served.http, image, agent="unseeing")).status_code == 202, "its planner is gone"


async def test_the_store_is_unavailable(shared_nats: NatsServer, bus: Bus) -> None:
    """503, and nothing was accepted; text goes on."""
    async with serving(shared_nats.url, accept_wait_s=0.2) as served:
        key = f"key-{new_id()}"
        assert_unavailable(await ask(served.http, sent(with_metadata("png")), key=key))
        assert (await served.http.get(f"/v1/runs/{run_id_for_key('default', key)}")).status_code == 404
        assert (await ask(served.http)).status_code == 202
    assert bus.is_connected


def test_the_repr_of_an_image_has_no_bytes() -> None:
    """Neither the image nor the question around it."""
    image = ImageInput(data=DATA + "c2VjcmV0")
    assert "c2VjcmV0" not in repr(image) + str(RunInput(query="?", images=[image]))
