"""Images that mean harm, or were harmed: each is answered, and the gateway and its other callers never notice."""

import asyncio
import itertools
import json
import os
import signal
import sys
import time
import zlib
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import structlog
from PIL import Image

from contracts.wire.names import new_id, run_id_for_key
from services.gateway.settings import GatewaySettings
from services.messaging.connection import Bus
from services.shared.images.cleaner import ImageCleaner, ImageRefused
from services.shared.images.worker import Limits
from tests.gateway.artifacts.test_images import accepted, ask, refused, sent, uploaded
from tests.support.gateways import Served, assert_unavailable, serving
from tests.support.image_workers import outcomes
from tests.support.images import (
    CANARY,
    FORMATS,
    bombs,
    data_url,
    disguised,
    drawn,
    encoded,
    exif,
    mutated,
    png_of,
    with_metadata,
    zeros,
)
from tests.support.nats_server import NatsServer
from tests.support.stores import Store
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("store")
MUTATED, MUTATED_OF_CALLERS = 500, 40


def slow_png() -> bytes:
    """One that is small enough, and takes a second or two."""
    side = 6_300
    return png_of(side, side, zeros(side * (side * 3 + 1)), bits=8, colour=2)


def workers() -> list[int]:
    """The processes that this one has started for images."""
    proc = Path("/proc")
    if not proc.is_dir():
        pytest.skip("no /proc here")
    found = []
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                if parent == str(os.getpid()) and b"images.worker" in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue  # It has just ended.
    return found


def cleaner(**settings: Any) -> ImageCleaner:
    return ImageCleaner(GatewaySettings(), **settings)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", bombs())
async def test_a_bomb_does_not_go_off(served: Served, name: str) -> None:
    """Refused by what its header says, soon; or it is not as large as it pretended."""
    kind, data = bombs()[name]
    began = time.monotonic()
    answer = await ask(served.http, sent(data, kind))
    if name == "png with far too much data":
        assert answer.status_code == 202, "ten pixels were read, and the rest left alone"
    else:
        assert "make it smaller" in refused(answer, "image_too_large", "images.0")
    assert time.monotonic() - began < 10


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", disguised())
@pytest.mark.parametrize("claim", ["image/png", "image/svg+xml"])
async def test_other_files_are_refused(served: Served, name: str, claim: str) -> None:
    """Whatever it is called; as an upload it may be kept, but not be shown."""
    answer = await ask(served.http, {"data": data_url(disguised()[name], claim)})
    assert "png, jpeg, webp and gif" in refused(answer, "image_invalid", "images.0")
    stored = await served.http.post("/v1/artifacts", content=disguised()[name])
    other = {"artifact_id": stored.json()["artifact_id"]}
    refused(await ask(served.http, sent(with_metadata("png")), other), "image_invalid", "images.1")


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", FORMATS)
async def test_a_truncated_image_is_refused(served: Served, kind: str) -> None:
    """In its header, in its middle, shortly before the last pixels."""
    sound = encoded(drawn((300, 200)), kind)
    for length in (20, len(sound) // 2, len(sound) - 30):
        answer = await ask(served.http, sent(sound[:length], kind))
        assert "cut short" in refused(answer, "image_invalid", "images.0") or length == 20


async def test_the_stated_type_must_match_the_bytes(served: Served) -> None:
    """A data URL says the type; common aliases do."""
    jpeg = with_metadata("jpeg")
    assert "say image/jpeg" in refused(await ask(served.http, sent(jpeg, "png")), "image_invalid", "images.0")
    assert (await ask(served.http, {"data": data_url(jpeg, "IMAGE/JPG;charset=utf-8")})).status_code == 202


async def test_an_invalid_data_url_is_refused(served: Served) -> None:
    """Nothing is fetched from anywhere, and base64 is strict: two programs never read different bytes in it."""
    http = "http://example.org/a.png"
    for data in ("", "x", http, "data:image/png,abc", "data:image/png;base64", "data:;base64,AAAA"):
        answer = await ask(served.http, {"data": data})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"].startswith("images.0")
    for text in ("iVBORw0K Gg==", "iVBORw0KGg=", "iVBORw0KGg", "iVBORw0KGg==x", "-_-_", "ivb\n", "ü"):
        answer = await ask(served.http, {"data": f"data:image/png;base64,{text}"})
        assert "RFC 4648" in refused(answer, "image_invalid", "images.0"), text


async def test_limits_of_a_question(shared_nats: NatsServer, bus: Bus) -> None:
    """Number, bytes of each and of all, sides; and everything beside the bytes keeps to the limit of bodies."""
    noise, png = os.urandom(30_000), encoded(drawn(), "png")
    limits = {"max_images": 3, "max_image_bytes": 40_000, "max_images_bytes": 90_000, "max_image_side": 400}
    image, heavy = sent(png), sent(png + noise)  # What comes after an image's end is no part of it.
    async with serving(shared_nats.url, max_body_bytes=20_000, **limits) as served:
        request = await accepted(bus, await ask(served.http, heavy, heavy, image))
        assert len({ref.artifact_id for ref in request.images}) == 3
        assert "at most 3" in refused(await ask(served.http, *[image] * 4), "invalid_input", "images")
        assert "40000" in refused(await ask(served.http, sent(bytes(40_001))), "image_too_large", "images.0")
        assert "together" in refused(await ask(served.http, heavy, heavy, heavy), "image_too_large", "images.2")
        wide = await ask(served.http, image, sent(encoded(drawn((401, 4)), "png")))
        assert "401 × 4" in refused(wide, "image_too_large", "images.1")
        for answer in (
            await ask(served.http, heavy, llm_context={"text": "y" * 20_000}),
            await ask(served.http, sent(bytes(200_000))),
            await served.http.post("/v1/runs", json={"query": "?", "images": [data_url(noise, "image/png")]}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
            assert " images" in answer.json()["detail"]
        large = await ask(served.http, await uploaded(served.http, png + noise + noise))
        assert "bytes" in refused(large, "image_too_large", "images.0")


@pytest.mark.chaos
async def test_an_image_as_large_as_is_taken(served: Served, store: Store, bus: Bus) -> None:
    """Ten mebibytes in a body of fourteen; other callers are answered meanwhile."""
    size = 1_850
    image = png_of(size, size, zlib_stored(size), bits=8, colour=2)
    assert 9.7 < len(image) / (1 << 20) < 10
    asking = asyncio.create_task(ask(served.http, sent(image)))
    slowest = 0.0
    while not asking.done():
        began = time.monotonic()
        assert (await served.http.get("/v1/tools")).status_code == 200
        slowest = max(slowest, time.monotonic() - began)
        await asyncio.sleep(0.005)
    (ref,) = (await accepted(bus, await asking)).images
    assert (await store.client.head("default", ref.artifact_id)).ref.size > 9 << 20
    assert slowest < 2


def zlib_stored(side: int) -> bytes:
    """Noise for a PNG, hardly compressed."""
    return zlib.compress(b"".join(b"\0" + os.urandom(side * 3) for _ in range(side)), 0)


async def test_dozens_of_damaged_images(served: Served, bus: Bus) -> None:
    """Each is taken or refused by name; the gateway holds no more afterwards than before."""
    answers: Counter[tuple[int, str]] = Counter()
    damaged = mutated(MUTATED_OF_CALLERS)

    async def caller() -> None:
        for kind, data in damaged:
            answer = await ask(served.http, sent(data, kind))
            answers[answer.status_code, answer.json().get("code", "")] += 1

    await asyncio.gather(*(caller() for _ in range(3)))
    assert answers.total() == MUTATED_OF_CALLERS
    assert set(answers) <= {(202, ""), (422, "image_invalid"), (422, "image_too_large")}, answers
    assert min(answers[202, ""], answers[422, "image_invalid"]) > MUTATED_OF_CALLERS // 20
    assert not workers()
    assert bus.is_connected


@pytest.mark.chaos
def test_hundreds_of_damaged_images() -> None:
    """No worker crashes, or ends without an answer."""
    found = outcomes(mutated(MUTATED), Limits(40_000_000, 16_384))
    assert [outcome.code for outcome in found] == [0] * MUTATED
    answers = [json.loads(outcome.out.partition(b"\n")[0]) for outcome in found]
    assert all(
        bool(outcome.out.partition(b"\n")[2]) == ("refused" not in answer)
        for outcome, answer in zip(found, answers, strict=True)
    )
    kinds = Counter(answer.get("refused", "taken") for answer in answers)
    assert set(kinds) == {"taken", "invalid", "too_large"}
    assert min(kinds["taken"], kinds["invalid"]) > MUTATED // 20
    assert all(set(answer) in (set(), {"refused", "reason"}) for answer in answers)


async def test_damaged_metadata_costs_no_image() -> None:
    """Where the pixels are whole, as browsers show it."""
    whole = with_metadata("png")
    at = whole.index(b"iCCP") + 40
    damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    assert await cleaner().clean(damaged, "image/png") == await cleaner().clean(whole, "image/png")


async def test_a_worker_that_takes_too_long_is_killed() -> None:
    """And is not left behind."""
    with pytest.raises(ImageRefused, match="smaller") as caught:
        await cleaner(timeout_s=0.3).clean(slow_png(), "image/png")
    assert caught.value.too_large
    assert not workers()


async def test_a_worker_that_dies_takes_nothing_with_it(served: Served) -> None:
    """As when the system is short of memory, or a decoder is broken into."""
    asking = asyncio.create_task(ask(served.http, sent(slow_png())))
    await wait_until(lambda: bool(workers()), what="the image is being decoded")
    os.kill(workers()[0], signal.SIGKILL)
    refused(await asking, "image_invalid", "images.0")
    assert (await ask(served.http, sent(with_metadata("png")))).status_code == 202


async def test_a_client_that_disconnects_ends_the_work(served: Served) -> None:
    """No run comes of it."""
    key = f"key-{new_id()}"
    asking = asyncio.create_task(ask(served.http, sent(slow_png()), key=key))
    await wait_until(lambda: bool(workers()), what="the image is being decoded")
    asking.cancel()
    await wait_until(lambda: not workers(), timeout=1, what="the worker is gone")
    await wait_until(lambda: not served.parts.streams, what="the request is forgotten")
    assert (await served.http.get(f"/v1/runs/{run_id_for_key('default', key)}")).status_code == 404


async def test_a_gateway_that_cannot_decode_says_so(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image is not blamed for it."""
    image = sent(with_metadata("png"))
    with monkeypatch.context() as patched:
        patched.setattr(served.parts.images._cleaner, "_limits", ("many", "wide"))
        broken = await ask(served.http, image)
    assert (broken.status_code, broken.json()["code"]) == (500, "internal")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/nowhere/python")
        assert_unavailable(await ask(served.http, image))
    assert (await ask(served.http, image)).status_code == 202


@pytest.mark.chaos
async def test_the_largest_image_can_be_rotated() -> None:
    """Forty megapixels, in portrait format."""
    image = encoded(drawn((7_740, 5_160)), "jpeg", exif=exif(6))
    turned = await cleaner().clean(image, "image/jpeg")
    with Image.open(BytesIO(turned)) as found:
        assert (found.size, found.format) == ((5_160, 7_740), "JPEG")


@pytest.mark.chaos
async def test_two_are_decoded_at_once() -> None:
    """However many wait."""
    shared = cleaner()

    async def one() -> None:
        async with shared.slots:
            await shared.clean(with_metadata("webp"), "image/webp")

    most = 0
    waiting = [asyncio.create_task(one()) for _ in range(12)]
    while not all(task.done() for task in waiting):
        most = max(most, len(workers()))
        await asyncio.sleep(0.002)
    await asyncio.gather(*waiting)
    assert 1 <= most <= 2


async def test_no_bytes_where_they_do_not_belong(served: Served, bus: Bus) -> None:
    """Not in what is logged, not in answers, not in what is stored of the run; whether the image is taken or not."""
    image = with_metadata("png")
    sound, cut = data_url(image, "image/png"), data_url(image[:-60], "image/png")
    images: list[Any] = [
        [{"data": cut}],
        [{"data": sound.replace("png", "gif", 1)}],
        [{"data": sound + "!"}],
        [sound],
        [{sound: 1}],
        {"data": sound},
        [{"data": sound, "artifact_id": sound}],
        [{"artifact_id": sound}],
        [{"data": [sound]}],
        [{"data": sound, "detail": sound}],
    ]
    with structlog.testing.capture_logs() as logs:
        accepted_one = await ask(served.http, {"data": sound})
        stored = (await accepted(bus, accepted_one)).model_dump_json().encode()
        said = [stored, accepted_one.content]
        for path, each in itertools.product(("/v1/runs", "/chat"), images):
            answer = await served.http.post(path, json={"query": "?", "images": each})
            assert answer.status_code == 422, answer.text
            said.append(answer.content)
        said.append((await served.http.post("/v1/runs", json={"query": "?", sound: []})).content)
        half = b'{"images": [{"data": "' + sound.encode()
        said.append((await served.http.post("/v1/runs", content=half)).content)
    traces = [CANARY.encode(), image[40:60], *(sound[at : at + 24].encode() for at in range(30, len(sound) - 30))]
    log = repr(logs).encode()
    assert b"image_refused" in log
    assert b"<image image/png " in log
    for place in (*said, log):
        assert not [trace for trace in traces if trace in place]
