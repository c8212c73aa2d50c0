"""Images on their way in: from what a caller sends to references that a run can keep.

Rule 1: what a run refers to was decoded, cleaned and stored before the run exists. A reference always leads to an
image.
Rule 2: an image's id follows from its run, its place and its bytes. So a request that is repeated stores nothing twice.
Rule 3: an artifact among the input images has been through this; it is taken as it is.
Rule 4: nothing of an image is in what is logged or said about it.
Rule 5: an artifact of a session is shown in that session alone. One of no session may be shown in every run of its
tenant.
"""

import asyncio
import binascii
import hashlib
import re
from typing import cast, get_args

import structlog

from contracts.artifacts import ArtifactRef
from contracts.ids import image_id
from contracts.images import INPUT_IMAGE, ImageInput, ImageRef, ImageType
from contracts.runs import RunInput
from services.gateway.errors import ImageInvalid, ImageTooLarge, InvalidInput, Problem, TryAgain
from services.gateway.settings import GatewaySettings
from services.images.cleaner import CleanImage, CleaningFailed, ImageCleaner, ImageRefused, too_heavy
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactNotFound
from services.shared.image_types import image_type

logger = structlog.get_logger(__name__)

_TYPES = frozenset(get_args(ImageType))
_TAKEN = "png, jpeg, webp and gif are taken"
_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_PREFIX = re.compile(r"data:([a-z]+/[a-z0-9.+-]+)(?:;[a-z-]+=[^;,]*)*;base64,", re.ASCII | re.IGNORECASE)
_PREFIX_CHARACTERS = 200


class Images:
    """Takes the images of questions in."""

    def __init__(self, artifacts: ArtifactClient, settings: GatewaySettings) -> None:
        self._artifacts = artifacts
        self._settings = settings
        self._cleaner = ImageCleaner(settings)

    async def take(self, tenant: str, run: str, asked: RunInput) -> list[ImageRef]:
        """Return references to the images of a question, in its order; they are kept as long as the run.

        Raises ImageInvalid, ImageTooLarge, InvalidInput for an artifact that is not there, and StorageUnavailable.
        """
        if len(asked.images) > self._settings.max_images:
            raise InvalidInput("images", f"at most {self._settings.max_images} images are taken")
        stored = [
            await self._stored(tenant, asked.session_id or None, number, image)
            for number, image in enumerate(asked.images)
        ]
        self._check_sizes(
            [ref.size if ref else _size_of(image) for image, ref in zip(asked.images, stored, strict=True)]
        )
        return [
            await self._taken(tenant, run, asked.session_id, number, image, ref)
            for number, (image, ref) in enumerate(zip(asked.images, stored, strict=True))
        ]

    async def _stored(self, tenant: str, session: str | None, number: int, image: ImageInput) -> ArtifactRef | None:
        if image.artifact_id is None:
            return None
        try:
            found = await self._artifacts.head(tenant, image.artifact_id)
        except ArtifactNotFound as error:
            raise _unknown(number) from error
        if found.session_id is not None and found.session_id != session:
            raise InvalidInput(
                f"images.{number}.artifact_id",
                "the artifact belongs to another session; ask with its session_id, upload it without one, or send it as `data`",
            )
        ref = found.ref
        if ref.mime_type not in _TYPES:
            raise ImageInvalid(number, f"the artifact is no image that models see; {_TAKEN}")
        return ref

    def _check_sizes(self, sizes: list[int]) -> None:
        for number, size in enumerate(sizes):
            if size > self._settings.max_image_bytes:
                raise ImageTooLarge(number, too_heavy(size, self._settings.max_image_bytes))
            if sum(sizes[: number + 1]) > self._settings.max_images_bytes:
                limit = self._settings.max_images_bytes
                raise ImageTooLarge(
                    number,
                    f"with it the images have more than {limit} bytes together; leave some out or make them smaller",
                )

    async def _taken(
        self, tenant: str, run: str, session: str | None, number: int, image: ImageInput, stored: ArtifactRef | None
    ) -> ImageRef:
        if stored is None or stored.namespace != INPUT_IMAGE or stored.json_type is not None:
            async with self._cleaner.slots:
                if stored is None:
                    declared, name = _declared(number, image.data or ""), image.filename
                    data = await asyncio.to_thread(_decoded, number, image.data or "")
                else:
                    declared, name = stored.mime_type, image.filename or stored.filename
                    data = await self._fetched(tenant, number, stored)
                clean = await self._cleaned(number, data, declared)
                stored = await self._put(tenant, run, session, number, clean, name)
        logger.debug("image_taken", run_id=run, number=number, image=f"<image {stored.mime_type} {stored.size} bytes>")
        mime_type = cast("ImageType", stored.mime_type)
        return ImageRef(
            artifact_id=stored.artifact_id, mime_type=mime_type, filename=stored.filename, detail=image.detail
        )

    async def _fetched(self, tenant: str, number: int, stored: ArtifactRef) -> bytes:
        try:
            return (await self._artifacts.read(tenant, stored.artifact_id, limit=self._settings.max_image_bytes))[1]
        except ArtifactNotFound as error:  # It has just been deleted.
            raise _unknown(number) from error

    async def _cleaned(self, number: int, data: bytes, declared: str) -> CleanImage:
        kind = image_type(data)
        if kind is None:
            raise ImageInvalid(number, f"its bytes are no image that models see; {_TAKEN}")
        if declared != kind:
            raise ImageInvalid(number, f"its bytes are {kind}, not what it is said to be; say {kind}")
        try:
            return await self._cleaner.clean(data, kind)
        except ImageRefused as refusal:
            logger.info(
                "image_refused", number=number, reason=refusal.reason, image=f"<image {kind} {len(data)} bytes>"
            )
            raise (ImageTooLarge if refusal.too_large else ImageInvalid)(number, refusal.reason) from None
        except CleaningFailed as failure:
            raise (
                TryAgain("The gateway cannot start a process for the image.") if failure.retryable else Problem()
            ) from None

    async def _put(
        self, tenant: str, run: str, session: str | None, number: int, clean: CleanImage, name: str | None
    ) -> ArtifactRef:
        digest = await asyncio.to_thread(lambda: hashlib.sha256(clean.data).hexdigest())
        return await self._artifacts.put(
            tenant,
            clean.data,
            session=session or None,
            run=run,
            namespace=INPUT_IMAGE,
            filename=name,
            mime_type=clean.mime_type,
            artifact_id=image_id(run, number, digest),
        )


def _unknown(number: int) -> InvalidInput:
    return InvalidInput(f"images.{number}.artifact_id", "there is no such artifact; upload it, or send it as `data`")


def _prefix(data: str) -> re.Match[str] | None:
    return _PREFIX.match(data, 0, _PREFIX_CHARACTERS)


def _size_of(image: ImageInput) -> int:
    """Bytes that the base64 of an image stands for."""
    data = image.data or ""
    prefix = _prefix(data)
    return (len(data) - (prefix.end() if prefix else 0)) // 4 * 3 - data[-2:].count("=")


def _declared(number: int, data: str) -> str:
    """The type that a data URL names. Raises ImageInvalid."""
    prefix = _prefix(data)
    if prefix is None:
        raise ImageInvalid(number, "`data` is no data URL in base64; it begins like data:image/png;base64,")
    name = prefix[1].lower()
    kind = _ALIASES.get(name, name)
    if kind not in _TYPES:
        raise ImageInvalid(number, f"`data` is said to be something that models do not see; {_TAKEN}")
    return kind


def _decoded(number: int, data: str) -> bytes:
    """The bytes of a data URL. Raises ImageInvalid."""
    prefix = _prefix(data)
    try:
        return binascii.a2b_base64(data[prefix.end() if prefix else 0 :], strict_mode=True)
    except ValueError:
        raise ImageInvalid(
            number, "`data` is not base64 as RFC 4648 4 has it: its alphabet, its padding, no line breaks"
        ) from None
