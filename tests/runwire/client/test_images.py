"""Images that the client sends: their forms, what is refused, and what a gateway stores."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contracts.artifacts import ImageInput
from contracts.wire.names import new_id
from runwire.client import Client, options
from runwire.client.options import image_inputs
from runwire.errors import RunwireError
from services.messaging.connection import Bus
from tests.support.gateways import requested, serving
from tests.support.images import data_url, drawn, encoded
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stores import Store
from tests.support.stores import serving as storing

PNG = encoded(drawn(), "png")


def test_the_forms_of_an_image() -> None:
    """Bytes, an id, a data URL, and everything that the gateway accepts."""
    artifact, url = new_id(), data_url(PNG, "image/png")
    given: list[Any] = [
        PNG,
        artifact,
        url,
        {"artifact_id": artifact, "detail": "low"},
        ImageInput(artifact_id=artifact),
    ]
    found = [
        {"data": url},
        {"artifact_id": artifact},
        {"data": url},
        {"artifact_id": artifact, "detail": "low"},
        {"artifact_id": artifact},
    ]
    assert image_inputs(given) == found


def test_what_cannot_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is sent, with the name of the file."""
    page = tmp_path / "page.png"
    page.write_bytes(b"<html>")
    with pytest.raises(ValueError, match="the image is empty"):
        image_inputs([b""])
    with pytest.raises(ValueError, match=r"page\.png is not a png, jpeg, webp or gif; convert it to one of them"):
        image_inputs([page])
    with pytest.raises(FileNotFoundError):
        image_inputs([tmp_path / "nowhere.png"])
    monkeypatch.setattr(options, "MAX_IMAGES_BYTES", len(PNG) + 10)
    with pytest.raises(ValueError, match="together"):
        image_inputs([PNG, PNG])
    with (tmp_path / "sparse.png").open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"sparse\.png has 1099511627776 bytes"):
        image_inputs([tmp_path / "sparse.png"])


@pytest.fixture
async def store(bus: Bus, own_nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Store]:
    assert bus.is_connected
    with S3Server("rclone", tmp_path / "s3") as s3:
        async with storing(s3, own_nats_server.url) as found:
            yield found


@pytest.mark.usefixtures("store")
async def test_the_client_sends_images(own_nats_server: NatsServer, bus: Bus, tmp_path: Path) -> None:
    """All forms in one question, which may be repeated; an image that the gateway refuses is named."""
    file = tmp_path / "drawn.png"
    file.write_bytes(PNG)
    async with (
        serving(own_nats_server.url, max_image_bytes=40_000) as served,
        Client(served.url, patience_s=10) as client,
    ):
        shown: list[options.Image] = [
            file,
            encoded(drawn(), "webp"),
            {"data": data_url(PNG, "image/png"), "detail": "high"},
        ]
        run = await client.start("what?", images=shown, idempotency_key="k")
        assert await client.start("what?", images=shown, idempotency_key="k") == run
        refs = (await requested(bus, run)).images
        assert [(ref.mime_type, ref.filename, ref.detail) for ref in refs] == [
            ("image/png", "drawn.png", None),
            ("image/webp", None, None),
            ("image/png", None, "high"),
        ]
        again = await client.start("and this?", images=[refs[0].artifact_id])
        assert again != run
        with pytest.raises(RunwireError) as refusal:
            await client.start("what?", images=[PNG, PNG + bytes(50_000)])
        assert (refusal.value.code, refusal.value.errors[0]["field"]) == ("image_too_large", "images.1")
        assert base64.b64encode(PNG).decode()[30:60] not in str(refusal.value)
