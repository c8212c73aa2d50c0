"""Detect the image types that models accept, from the first bytes."""

import base64
import binascii

from contracts.artifacts.images import ImageType

HEAD_BYTES = 12
"""Bytes that are enough to detect a type."""
_SIGNATURES: tuple[tuple[bytes, ImageType], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(data: bytes) -> ImageType | None:
    """Return the type of an image from its first bytes; None if models do not accept it."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), None)


def image_in(text: str) -> bytes:
    """Return the bytes of an image that a text holds as base64; empty if it holds none."""
    try:
        if image_type(base64.b64decode(text[: HEAD_BYTES // 3 * 4], validate=True)) is None:
            return b""
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
