"""Check and clean one image: `python -P -m services.shared.images.worker PNG 40000000 16384 < image > answer`.

A process of its own for every image, since untrusted bytes can crash decoders: a crash here costs one image. The answer
is a line of JSON, `{}` or `{"refused", "reason"}`, and after it the cleaned image, of the same format.

Rule 1: the size in the header is checked before anything is decoded.
Rule 2: then every pixel of the first frame is decoded. What is cut short or does not decode without complaint is
refused.
Rule 3: what goes out holds pixels and nothing else: no EXIF, XMP, IPTC, ICC profile, text, comment, thumbnail or second
frame. The orientation that EXIF asked for is applied first.
Rule 4: pixels stay as they are where the format allows it: PNG and GIF are written again without a loss (sixteen bits
of a colour become eight), JPEG with its own quantization tables. WebP keeps its compressed frame, unless it has to be
turned or taken out of an animation.
Rule 5: a reason is our own sentence. A decoder's message may contain bytes of the image, so it is not shown.
"""

import json
import os
import struct
import sys
import warnings
import zlib
from contextlib import suppress
from io import BytesIO
from typing import Any, NamedTuple

from PIL import GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

_MEMORY_BYTES, _MEMORY_PER_PIXEL = 512 << 20, 16
"""Limit of the address space: the program, and the decoded image several times over."""
_CPU_S = 20
_NICENESS = 5
"""The worker runs at lower priority than the service that started it."""

_PLUGINS = (PngImagePlugin, JpegImagePlugin, WebPImagePlugin, GifImagePlugin)
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_PNG_LEVEL = 4
"""Compression level of zlib: takes two thirds longer than level 1, and the file is nearly as small as at level 9."""
_PNG_TEXT_BYTES = 16 << 20
"""Limit of one text or profile, decompressed.

Drawing programs store whole documents there, larger than the decoder's default limit of a megabyte. Texts and profiles
are removed in any case, so they are no reason to refuse an image.
"""
_WEBP_QUALITIES = (90, 60)
"""Tried in this order: a very large lossy WebP cannot be written at the first one, since a part of the format
overflows."""
_WEBP_ALPHA = 0x10


class Limits(NamedTuple):
    """The largest accepted image: pixels in all, and pixels of its longer side."""

    pixels: int
    side: int


class Refused(Exception):
    """The image is not taken. `kind`: `invalid` or `too_large`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


def cleaned(data: bytes, format_: str, limits: Limits) -> bytes:
    """Return an image without its metadata. Raises Refused, and whatever a decoder raises."""
    Image.MAX_IMAGE_PIXELS = limits.pixels
    PngImagePlugin.MAX_TEXT_CHUNK = _PNG_TEXT_BYTES
    if format_ == "WEBP":
        _check_size(_webp_canvas(data), limits)  # Its decoder allocates the canvas when it has read the header.
    data = _png_without_damaged_metadata(data) if format_ == "PNG" else data
    with Image.open(BytesIO(data), formats=[format_]) as image:
        _check_size(image.size, limits)
        image.load()
        turn = None
        # Damaged EXIF data rotates nothing, and is removed with the rest.
        with suppress(Exception):
            turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
        still = _webp_still(data) if format_ == "WEBP" and turn is None else None
        if still is not None:
            return still
        # Transparency belongs to the pixels; all other metadata is removed.
        image.info = {name: value for name, value in image.info.items() if name == "transparency"}
        options = _options(image, data, format_)
        upright = image if turn is None else image.transpose(turn)
        if format_ == "JPEG" and upright.mode == "CMYK":
            upright, options = upright.convert("RGB"), [{"quality": 90}]  # Models expect RGB.
        return _written(upright, format_, options)


def _check_size(size: tuple[int, int], limits: Limits) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise Refused("invalid", "it has no pixels")
    if max(size) > limits.side:
        raise Refused(
            "too_large",
            f"it measures {width} × {height}; no side may have more than {limits.side} pixels; make it smaller",
        )
    if width * height > limits.pixels:
        raise Refused(
            "too_large", f"it measures {width} × {height}; at most {limits.pixels} pixels are taken; make it smaller"
        )


def _options(image: Image.Image, data: bytes, format_: str) -> list[dict[str, Any]]:
    """Return options of `save` that keep the pixels as they are, best first; the first that works is used."""
    if isinstance(image, JpegImagePlugin.JpegImageFile):
        return [{"qtables": image.quantization, "subsampling": JpegImagePlugin.get_sampling(image)}]
    if format_ == "WEBP":
        if any(name == b"VP8L" or b"VP8L" in payload[16:40] for name, payload in _webp_chunks(data)):
            return [{"lossless": True, "quality": 0, "method": 0, "exact": True}]
        return [{"quality": quality} for quality in _WEBP_QUALITIES]
    return [{"compress_level": _PNG_LEVEL} if format_ == "PNG" else {}]


def _written(image: Image.Image, format_: str, options: list[dict[str, Any]]) -> bytes:
    for option in options:
        target = BytesIO()
        with suppress(ValueError):  # Raised by WebP's encoder for an image that is too large for it.
            image.save(target, format_, **option)
            return target.getvalue()
    raise Refused(
        "too_large",
        "it cannot be written again at its size; make it smaller, or save it upright and without an animation",
    )


def _png_without_damaged_metadata(data: bytes) -> bytes:
    """Return a PNG file without the chunks beside its pixels whose checksums are wrong, as browsers show it."""
    kept, at = [data[:8]], 8
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        chunk = data[at : at + 12 + size]
        is_beside, checksum = data[at + 4] & 0x20, struct.pack(">I", zlib.crc32(chunk[4 : 8 + size]))
        if not is_beside or len(chunk) < 12 + size or chunk[-4:] == checksum:
            kept.append(chunk)
        at += 12 + size
    return b"".join([*kept, data[at:]])


def _webp_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return name and payload of each chunk of a WebP file (RFC 9649 2.3).

    In an animation, the payload of a frame holds chunks from its 16th byte on.
    """
    found, at = [], 12
    while at + 8 <= len(data):
        (size,) = struct.unpack_from("<I", data, at + 4)
        found.append((data[at : at + 4], data[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2
    return found


def _webp_canvas(data: bytes) -> tuple[int, int]:
    """Return width and height from the header of a WebP file. Raises Refused."""
    name, head = data[12:16], data[20:30].ljust(10, b"\0")
    if name == b"VP8X":
        return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1
    if name == b"VP8L" and head[:1] == b"/":
        bits = int.from_bytes(head[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if name == b"VP8 " and head[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", head, 6)
        return width & 0x3FFF, height & 0x3FFF
    raise Refused("invalid", "its header cannot be read")


def _webp_still(data: bytes) -> bytes | None:
    """Return the file with nothing but its one frame, which was decoded without complaint; None for an animation."""
    chunks = _webp_chunks(data)
    frame = next((chunk for chunk in chunks if chunk[0] in {b"VP8 ", b"VP8L"}), None)
    if frame is None:
        return None
    kept = [frame]
    alpha = next((chunk for chunk in chunks if chunk[0] == b"ALPH"), None)
    if alpha is not None and frame[0] == b"VP8 ":
        kept = [(b"VP8X", bytes([_WEBP_ALPHA, 0, 0, 0]) + data[24:30]), alpha, frame]
    body = b"WEBP" + b"".join(
        name + struct.pack("<I", len(payload)) + payload + b"\0" * (len(payload) % 2) for name, payload in kept
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _limit_resources(pixels: int) -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415, Windows has none

        for kind, most in (
            (resource.RLIMIT_CORE, 0),  # A core dump would contain the image.
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CPU, _CPU_S),
            (resource.RLIMIT_AS, _MEMORY_BYTES + _MEMORY_PER_PIXEL * pixels),
        ):
            with suppress(OSError, ValueError):  # macOS takes no limit of the address space.
                resource.setrlimit(kind, (most, most))
    with suppress(AttributeError, OSError):
        os.nice(_NICENESS)


def main() -> None:
    """Read an image from stdin, clean it, and write the answer to stdout."""
    format_, limits = sys.argv[1], Limits(*map(int, sys.argv[2:4]))
    _limit_resources(limits.pixels)
    # A decoder's warning refuses the image, unless it is about metadata, which is removed anyway.
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", module=r"PIL\.TiffImagePlugin")
    body, answer = b"", dict[str, str]()
    try:
        body = cleaned(sys.stdin.buffer.read(), format_, limits)
    except Refused as refused:
        answer = {"refused": refused.kind, "reason": refused.reason}
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        answer = {"refused": "too_large", "reason": f"it has more than {limits.pixels} pixels; make it smaller"}
    except MemoryError:
        answer = {"refused": "too_large", "reason": "it needs too much memory; make it smaller"}
    except Exception:  # noqa: BLE001, a decoder raises whatever it likes (rule 5)
        answer = {
            "refused": "invalid",
            "reason": "it is damaged, cut short, or not what it begins as; save it again with another program",
        }
    with suppress(BrokenPipeError):
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
