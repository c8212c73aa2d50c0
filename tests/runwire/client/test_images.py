"""Images that the client sends: their forms, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from contracts.artifacts import ImageInput
from contracts.wire.names import new_id
from runwire.client import options
from runwire.client.options import image_inputs
from tests.support.images import data_url, drawn, encoded

PNG = encoded(drawn(), "png")


def test_the_forms_of_an_image(tmp_path: Path) -> None:
    """Bytes, an id, a data URL, a file with its name, and everything that the gateway accepts."""
    artifact, url = new_id(), data_url(PNG, "image/png")
    file = tmp_path / "drawn.png"
    file.write_bytes(PNG)
    forms: list[tuple[Any, dict[str, str]]] = [
        (PNG, {"data": url}),
        (artifact, {"artifact_id": artifact}),
        (url, {"data": url}),
        (file, {"data": url, "filename": "drawn.png"}),
        ({"artifact_id": artifact, "detail": "low"}, {"artifact_id": artifact, "detail": "low"}),
        (ImageInput(artifact_id=artifact), {"artifact_id": artifact}),
    ]
    assert image_inputs(given for given, _ in forms) == [found for _, found in forms]


def test_what_cannot_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is sent, with the name of the file."""
    (tmp_path / "page.png").write_bytes(b"<html>")
    with (tmp_path / "sparse.png").open("wb") as sparse:
        sparse.truncate(1 << 40)
    monkeypatch.setattr(options, "MAX_IMAGES_BYTES", len(PNG) + 10)
    refused: list[tuple[list[Any], str]] = [
        ([b""], "the image is empty"),
        ([tmp_path / "page.png"], r"page\.png is not a png, jpeg, webp or gif; convert it to one of them"),
        ([tmp_path / "nowhere.png"], "No such file"),
        ([PNG, PNG], "together"),
        ([tmp_path / "sparse.png"], r"sparse\.png has 1099511627776 bytes"),
    ]
    for images, said in refused:
        with pytest.raises((ValueError, FileNotFoundError), match=said):
            image_inputs(images)
