"""Check and clean images, each in its own process (`worker`).

Rule 1: untrusted bytes are decoded only in a worker. If it is killed, runs out of memory or takes too long, the image
is refused and the service continues.
Rule 2: a worker ends with the task that started it, at the latest after `timeout_s`.
Rule 3: few workers run at once per service: an image may take seconds and hundreds of megabytes.
"""

import asyncio
import sys
from contextlib import suppress

import orjson
import structlog
from pydantic import Field

from contracts.artifacts import ImageType
from services.runtime.settings import BusSettings, environment_without_settings

logger = structlog.get_logger(__name__)

MAX_WORKERS = 2
TIMEOUT_S = 30.0
_WORKER = "services.shared.images.worker"
_MAX_GROWTH = 4
"""A highly compressed image may grow when it is encoded again, at most to this multiple of the input limit."""
_HEADER_BYTES = 4096

_FORMATS: dict[ImageType, str] = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/gif": "GIF"}


class ImageSettings(BusSettings):
    """Limits of one image, the same for every service that accepts images."""

    max_image_bytes: int = Field(default=10 << 20, ge=1024, description="of each image, decoded from base64")
    max_image_pixels: int = Field(default=40_000_000, ge=1, description="width times height of an image")
    max_image_side: int = Field(default=16_384, ge=1, description="width or height of an image")


class ImageRefused(Exception):
    """The image is refused.

    `too_large`: the kind of refusal; `reason`: a sentence for users, without any content of the image.
    """

    def __init__(self, reason: str, *, too_large: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_large = too_large


class CleaningFailed(Exception):
    """The image could not be checked. `retryable`: no worker could be started, perhaps only for a moment."""

    def __init__(self, *, retryable: bool) -> None:
        super().__init__("the image could not be checked")
        self.retryable = retryable


class ImageCleaner:
    """Cleans images in workers, at most two at once."""

    def __init__(self, limits: ImageSettings, *, timeout_s: float = TIMEOUT_S) -> None:
        self._limits = (str(limits.max_image_pixels), str(limits.max_image_side))
        self._max_input_bytes = limits.max_image_bytes
        self._max_output_bytes = limits.max_image_bytes * _MAX_GROWTH
        self._timeout_s = timeout_s
        self.slots = asyncio.Semaphore(MAX_WORKERS)
        """Acquire one before fetching an image's bytes, so that waiting callers hold none."""

    async def clean(self, data: bytes, kind: ImageType) -> bytes:
        """Return the image with only its pixels, of the same type.

        Call it while holding a slot. Raises ImageRefused and CleaningFailed.
        """
        if len(data) > self._max_input_bytes:
            raise ImageRefused(too_heavy(len(data), self._max_input_bytes), too_large=True)
        try:
            async with asyncio.timeout(self._timeout_s):
                code, out = await self._run(data, kind)
        except TimeoutError:
            raise ImageRefused(
                f"it could not be decoded within {self._timeout_s:g} s; make it smaller", too_large=True
            ) from None
        except OSError as error:
            logger.error("image_worker_not_started", error=repr(error))  # noqa: TRY400, its number says all
            raise CleaningFailed(retryable=True) from None
        if code < 0:
            # A signal ended it, perhaps during its answer: it exceeded its CPU limit, or a decoder crashed.
            raise ImageRefused("it cannot be decoded; save it again with another program, or make it smaller")
        if code > 0 or not out:
            logger.error("image_worker_failed", exit_code=code)
            raise CleaningFailed(retryable=False)
        header, _, body = out.partition(b"\n")
        answer = orjson.loads(header)
        if "refused" in answer:
            raise ImageRefused(answer["reason"], too_large=answer["refused"] == "too_large")
        return body

    async def _run(self, data: bytes, kind: ImageType) -> tuple[int, bytes]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _WORKER, _FORMATS[kind], *self._limits),
            env=environment_without_settings(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )

        async def feed(stdin: asyncio.StreamWriter | None) -> None:
            if stdin is None:
                return
            with suppress(BrokenPipeError, ConnectionResetError):
                stdin.write(data)
                await stdin.drain()
            stdin.close()

        feeding = asyncio.create_task(feed(process.stdin))
        try:
            out = await _read(process, self._max_output_bytes + _HEADER_BYTES)
            return await process.wait(), out
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await asyncio.shield(process.wait())


def too_heavy(size: int, limit: int) -> str:
    """Return the sentence for an image with too many bytes."""
    return f"it has {size} bytes; at most {limit} are taken; make it smaller"


async def _read(process: asyncio.subprocess.Process, most: int) -> bytes:
    """Return the output of a worker. Raises ImageRefused when it is too large."""
    out = bytearray()
    while process.stdout is not None and (piece := await process.stdout.read(1 << 20)):
        out += piece
        if len(out) > most:
            raise ImageRefused(
                "it grows too much when it is written again; save it with another program", too_large=True
            )
    return bytes(out)
