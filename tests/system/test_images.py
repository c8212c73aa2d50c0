"""Images through whole systems: a crash does not change the model's input, and no log contains image bytes."""

import base64
import contextlib
import os
import random
from io import BytesIO
from pathlib import Path

from PIL import Image, PngImagePlugin

from tests.support.images import data_url
from tests.support.model_server import Say, Seen, action, answer, words
from tests.system.deployment import Whole

HIDDEN = "metadata-canary-51c2"
"""In a comment of the image: it must not even be stored."""
NAME = "patient-canary-7d40"
"""In the names of files: people and the log of the run may have them, what processes print may not."""
PNG = "image/png"
_WINDOW = 48


def noise(seed: int) -> bytes:
    """A PNG whose bytes do not compress, with a comment."""
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", HIDDEN)
    target = BytesIO()
    Image.frombytes("RGB", (64, 64), random.Random(seed).randbytes(64 * 64 * 3)).save(target, "PNG", pnginfo=info)
    return target.getvalue()


def images_in(seen: Seen) -> list[bytes]:
    parts = (
        part for message in seen.body["messages"] if isinstance(message["content"], list) for part in message["content"]
    )
    return [
        base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in parts if part["type"] == "image_url"
    ]


async def test_no_byte_of_an_image_is_left_where_it_does_not_belong(whole: Whole) -> None:
    """Neither in the logs of any process at DEBUG level, nor in anything that NATS keeps; its metadata not even in S3.

    The provider quotes the image in an error, a tool is called, a planner takes over, an upload is broken: all of them
    print something.
    """
    secret = noise(4)
    before = files_of(whole.s3.data).keys()  # what other tests of this file have uploaded
    broken = data_url(secret[: len(secret) // 2], PNG)
    refused = await whole.http.post("/v1/runs", json={"query": "?", "images": [{"data": broken}]})
    assert refused.status_code == 422
    quoted = base64.b64encode(secret).decode()[2000:2400]
    whole.model.say(
        Say(
            status=400,
            error={
                "message": f"cannot read data:image/png;base64,{quoted}",
                "type": "invalid_request_error",
                "code": None,
            },
        ),
        Say(status=500, error={"message": quoted, "type": "server_error", "code": None}, times=9),
    )
    failing = await whole.http.post("/chat", json={"query": "Look.", "images": [{"data": data_url(secret, PNG)}]})
    assert failing.status_code == 200
    whole.model.reset()
    whole.model.say(action("heavy", marker="x"), answer(words(30)))
    uploaded = (await whole.http.post("/v1/artifacts", content=secret, headers={"Content-Type": "image/png"})).json()
    sound = await whole.http.post(
        "/chat", json={"query": "Look.", "images": [{"artifact_id": uploaded["artifact_id"]}]}
    )
    assert sound.json()["payload"]["raw_answer"] == words(30)
    (shown,) = images_in(whole.model.ledger[0])

    everywhere = files_of(whole.stack.folder) | files_of(whole.nats.log.parent)
    assert any(path.is_relative_to(whole.nats.store) for path in everywhere)
    forms = [form for body in (secret, shown) for form in traces_of(body)]
    assert any(form.decode("latin-1") in whole.model.ledger[0].text for form in forms), (
        "what is looked for can be found"
    )
    found = [
        (path.name, form[:20])
        for path, body in everywhere.items()
        for form in [*forms, HIDDEN.encode()]
        if form in body
    ]
    assert not found
    kept = [body for path, body in files_of(whole.s3.data).items() if path not in before and HIDDEN.encode() in body]
    assert kept == [secret], "only what was uploaded as an artifact is kept as it came"


def files_of(folder: Path) -> dict[Path, bytes]:
    """All files below a folder. NATS removes blocks that nothing is left of at any time: what is gone holds nothing."""
    found = {}
    for where, _, names in os.walk(folder):
        for path in (Path(where) / name for name in names):
            with contextlib.suppress(FileNotFoundError):
                found[path] = path.read_bytes()
    return found


def traces_of(body: bytes) -> list[bytes]:
    """Pieces of an image, raw, in the three alignments of base64, in hexadecimal, and as Python prints them."""
    found = []
    for at in (400, len(body) // 2):
        window = body[at : at + _WINDOW]
        found += [window, window.hex().encode(), repr(window)[2:-1].encode()]
        found += [base64.b64encode(body[at + shift : at + shift + _WINDOW])[:_WINDOW] for shift in range(3)]
    return found
