"""Images for whole runs: small ones, and what a model was shown."""

import base64
import struct
import zlib
from typing import Any

from tests.support.model_server import Seen
from tests.support.run_services import MODEL

SEEING: dict[str, Any] = {"model_vision": {MODEL: True}}


def png(shade: int, size: int = 8) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([shade]) * size for _ in range(size))
    head = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


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
