"""Images for tests: valid ones with canaries in all their metadata, hostile ones, and damaged ones."""

import base64
import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from random import Random
from typing import Any

from PIL import ExifTags, Image, PngImagePlugin

CANARY = "canary-7f3a9c"
FORMATS = ("png", "jpeg", "webp", "gif")
TEXTS = (f"{CANARY}-exif", f"{CANARY}-xmp", f"{CANARY}-text", f"{CANARY}-comment", f"{CANARY}-icc")


def drawn(size: tuple[int, int] = (60, 40)) -> Image.Image:
    """An image with corners in red, green, blue and white, clockwise from the top left."""
    image = Image.new("RGB", size)
    wide, high = size[0] // 2, size[1] // 2
    for box, colour in (((0, 0), "red"), ((wide, 0), "lime"), ((wide, high), "blue"), ((0, high), "white")):
        image.paste(Image.new("RGB", (size[0] - wide, size[1] - high), colour), box)
    return image


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The image as a file."""
    target = BytesIO()
    image.save(target, kind.upper(), **options)
    return target.getvalue()


def exif(orientation: int | None = None) -> Image.Exif:
    """Metadata of a camera."""
    found = Image.Exif()
    found[ExifTags.Base.Make] = TEXTS[0]
    if orientation:
        found[ExifTags.Base.Orientation] = orientation
    return found


def with_metadata(kind: str, orientation: int | None = None) -> bytes:
    """An image with every kind of metadata that its format allows."""
    xmp = f"<x:xmpmeta xmlns:x='adobe:ns:meta/'>{TEXTS[1]}</x:xmpmeta>".encode()
    icc = b"\0\0\0\x80" + TEXTS[4].encode().ljust(124, b"\0")
    match kind:
        case "png":
            info = PngImagePlugin.PngInfo()
            info.add_text("Comment", TEXTS[2])
            info.add_itxt("XML:com.adobe.xmp", xmp.decode())
            info.add(b"tIME", struct.pack(">HBBBBB", 2026, 1, 1, 1, 1, 1))
            return encoded(drawn(), kind, pnginfo=info, exif=exif(orientation), icc_profile=icc, dpi=(72, 72))
        case "jpeg":
            return encoded(
                drawn(), kind, exif=exif(orientation), xmp=xmp, icc_profile=icc, comment=TEXTS[3].encode(), quality=90
            )
        case "webp":
            return encoded(drawn(), kind, exif=exif(orientation), xmp=xmp, icc_profile=icc, quality=90)
    frames = [drawn(), drawn().transpose(Image.Transpose.ROTATE_180)]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], comment=TEXTS[3].encode(), duration=100)


def animated(kind: str) -> bytes:
    """Two frames, the second one upside down."""
    frames = [drawn(), drawn().transpose(Image.Transpose.ROTATE_180)]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=100)


def corners(data: bytes) -> list[str]:
    """The colours of an image's corners, clockwise from the top left; compression may have changed them a little."""
    with Image.open(BytesIO(data)) as found:
        image = found.convert("RGB")
    width, height = image.size
    names = {"red": (255, 0, 0), "lime": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}

    def name_of(pixel: Any) -> str:
        return min(names, key=lambda name: sum(abs(a - b) for a, b in zip(names[name], pixel, strict=True)))

    return [name_of(image.getpixel(at)) for at in ((3, 3), (width - 4, 3), (width - 4, height - 4), (3, height - 4))]


def data_url(data: bytes, mime_type: str) -> str:
    """The image as a data URL."""
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def png_of(width: int, height: int, pixels: bytes, *, bits: int = 1, colour: int = 0) -> bytes:
    """A PNG with a header and data of one's choice."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def zeros(size: int) -> bytes:
    """So many zeros, compressed, without having them at once: a block that stands for a mebibyte is repeated."""
    packer, mebibyte = zlib.compressobj(9, wbits=-15), bytes(1 << 20)
    block = packer.compress(mebibyte) + packer.flush(zlib.Z_FULL_FLUSH)
    sum_of_all = (size % 65521) << 16 | 1  # Adler-32 of zeros
    rest = packer.compress(bytes(size % (1 << 20))) + packer.flush()
    return b"\x78\xda" + block * (size >> 20) + rest + struct.pack(">I", sum_of_all)


def bombs() -> dict[str, tuple[str, bytes]]:
    """Small files that want much memory."""
    gif = encoded(drawn(), "gif")
    webp = encoded(drawn(), "webp", lossless=True)
    extended = encoded(drawn(), "webp", exif=exif())
    jpeg = encoded(drawn(), "jpeg")
    start = jpeg.index(b"\xff\xc0")
    large = (16_383).to_bytes(3, "little") * 2
    return {
        "png of 109 KB": ("png", png_of(30_000, 30_000, zeros(30_000 * 3_751))),
        "png of 100 MP": ("png", png_of(10_000, 10_000, zeros(10_000 * 1_251))),
        "png that is all header": ("png", png_of(2**31 - 1, 2**31 - 1, b"")),
        "png with far too much data": ("png", png_of(10, 10, zeros(200 << 20))),
        "gif with a giant canvas": ("gif", gif[:6] + b"\xff\xff\xff\xff" + gif[10:]),
        "webp with a giant canvas": ("webp", extended[:24] + large + extended[30:]),
        "webp with a giant frame": ("webp", webp[:21] + b"\xff\xff\xff\x0f" + webp[25:]),
        "jpeg of 4 gigapixels": ("jpeg", jpeg[: start + 5] + b"\xff\xff\xff\xff" + jpeg[start + 9 :]),
    }


def disguised() -> dict[str, bytes]:
    """Files that are no image of the four types."""
    return {
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        "html": b"<!doctype html><script>alert(1)</script>",
        "pdf": b"%PDF-1.7\n" + b"x" * 100,
        "bmp": encoded(drawn(), "bmp"),
        "tiff": encoded(drawn(), "tiff"),
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
        "empty": b"",
    }


def mutated(count: int, seed: int = 4) -> Iterator[tuple[str, bytes]]:
    """Valid images with some bytes changed, cut, repeated or moved."""
    chance = Random(seed)
    sound = [(kind, with_metadata(kind)) for kind in FORMATS] + [
        (kind, animated(kind)) for kind in ("png", "webp", "gif")
    ]
    for _ in range(count):
        kind, data = chance.choice(sound)
        found = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 5, 20))):
            at = chance.randrange(12, len(found))
            match chance.randrange(5):
                case 0:
                    found[at] = chance.randrange(256)
                case 1:
                    found[at] ^= 1 << chance.randrange(8)
                case 2:
                    found[at : at + 4] = chance.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"))
                case 3:
                    del found[at : at + chance.randrange(1, 30)]
                case _:
                    found[at:at] = found[at : at + chance.randrange(1, 60)]
            if len(found) < 20:
                found = bytearray(data)
        yield kind, bytes(found)
