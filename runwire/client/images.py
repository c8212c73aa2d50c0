"""Images of a question, as the gateway takes them: files and bytes become data URLs here, artifacts stay ids."""

import base64
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runwire._contracts_import import images as vocabulary

Image = str | bytes | os.PathLike[str] | Mapping[str, Any] | vocabulary.ImageInput
"""A file, the bytes of one, an artifact's id (or a file's name), or an `ImageInput` with all that it may say."""

MOST_BYTES = 64 << 20
"""Of all images of a question together. A gateway takes less unless its operator has said otherwise; this much it
answers."""

_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
)
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


def image_inputs(images: Iterable[Image]) -> list[dict[str, Any]]:
    """Return the images as fields of `ImageInput`.

    Raises OSError for a file that cannot be read, ValueError for one that is no png, jpeg, webp or gif, and for too
    many bytes.
    """
    room, found = MOST_BYTES, []
    for image in images:
        given = _input(image, room)
        room -= len(given.get("data") or "") * 3 // 4
        found.append(given)
    return found


def _input(image: Image, room: int) -> dict[str, Any]:
    match image:
        case vocabulary.ImageInput():
            return image.model_dump(exclude_none=True)
        case Mapping():
            return dict(image)
        case bytes():
            return {"data": _data_url(image, "the image", room)}
        case str() if _ID.fullmatch(image):
            return {"artifact_id": image}
        case str() if image.startswith("data:"):
            return {"data": image}
    path = Path(image)
    # Looked at first: what is too large is not read.
    _check_size(path.stat().st_size, path.name, room)
    return {
        "data": _data_url(path.read_bytes(), path.name, room),
        "filename": path.name.encode(errors="replace").decode(),
    }


def _check_size(size: int, name: str, room: int) -> None:
    if size > room:
        raise ValueError(f"{name} has {size} bytes; all images of a question may have {MOST_BYTES} together")


def _data_url(data: bytes, name: str, room: int) -> str:
    _check_size(len(data), name, room)
    if not data:
        raise ValueError(f"{name} is empty")
    kind = next((kind for pattern, kind in _SIGNATURES if pattern.match(data)), None)
    if kind is None:
        raise ValueError(f"{name} is no png, jpeg, webp or gif; save it as one of them")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
