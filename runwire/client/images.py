"""Images of a question as the gateway accepts them: files and bytes become data URLs, artifacts stay ids."""

import base64
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from contracts.artifacts.images import ImageInput, image_type

Image = str | bytes | os.PathLike[str] | Mapping[str, Any] | ImageInput
"""The path of a file, its bytes, an artifact's id (32 hexadecimal digits), a data URL, or an `ImageInput`."""

MAX_IMAGES_BYTES = 64 << 20
"""Limit of all images of a question together; more are not sent. A gateway may accept less."""

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


def image_inputs(images: Iterable[Image]) -> list[dict[str, Any]]:
    """Return the images as fields of `ImageInput`.

    Raises OSError for a file that cannot be read, ValueError for one that is not png, jpeg, webp or gif, and for too
    many bytes.
    """
    free_bytes, inputs = MAX_IMAGES_BYTES, []
    for image in images:
        given = _input(image, free_bytes)
        free_bytes -= len(given.get("data") or "") * 3 // 4
        inputs.append(given)
    return inputs


def _input(image: Image, free_bytes: int) -> dict[str, Any]:
    match image:
        case ImageInput():
            return image.model_dump(exclude_none=True)
        case Mapping():
            return dict(image)
        case bytes():
            return {"data": _data_url(image, "the image", free_bytes)}
        case str() if _ID.fullmatch(image):
            return {"artifact_id": image}
        case str() if image.startswith("data:"):
            return {"data": image}
    path = Path(image)
    # What is too large is not even read.
    _check_size(path.stat().st_size, path.name, free_bytes)
    return {
        "data": _data_url(path.read_bytes(), path.name, free_bytes),
        "filename": path.name.encode(errors="replace").decode(),
    }


def _check_size(size: int, name: str, free_bytes: int) -> None:
    if size > free_bytes:
        raise ValueError(f"{name} has {size} bytes; all images of a question may have {MAX_IMAGES_BYTES} together")


def _data_url(data: bytes, name: str, free_bytes: int) -> str:
    _check_size(len(data), name, free_bytes)
    if not data:
        raise ValueError(f"{name} is empty")
    kind = image_type(data)
    if kind is None:
        raise ValueError(f"{name} is not a png, jpeg, webp or gif; convert it to one of them")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
