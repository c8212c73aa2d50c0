"""Check, clean and store the images of a run before the run exists.

Rule 1: a run refers only to images that were decoded, cleaned and stored. A reference always leads to an image.
Rule 2: the id of an image follows from its run, its position and its bytes, so a repeated request stores nothing twice.
Rule 3: an artifact of the namespace `input_image` was cleaned before; it is referred to as it is.
Rule 4: no log record and no error contains anything of an image.
Rule 5: an artifact of a session is shown in that session only; one without a session, in every run of its tenant. One
that the caller may not see (`reading`) is refused like one that does not exist.
"""

import asyncio
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import cast, get_args

import structlog

from contracts.artifacts import INPUT_IMAGE, ArtifactRef, ImageInput, ImageRef, ImageType, image_type
from contracts.wire.names import image_id
from services.gateway.artifacts.reading import ArtifactAccess
from services.gateway.auth.caller import Caller
from services.gateway.errors import ImageInvalid, ImageTooLarge, InvalidInput, Problem, TryAgain
from services.gateway.settings import GatewaySettings
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactNotFound
from services.shared.images.cleaner import CleaningFailed, ImageCleaner, ImageRefused, too_heavy

logger = structlog.get_logger(__name__)

_TYPES = frozenset(get_args(ImageType))
_TYPES_IN_WORDS = "png, jpeg, webp and gif are taken"
_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_DATA_URL_PREFIX = re.compile(r"data:([a-z]+/[a-z0-9.+-]+)(?:;[a-z-]+=[^;,]*)*;base64,", re.ASCII | re.IGNORECASE)
_MAX_PREFIX_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class _Owner:
    """The run that the images belong to, and who sent them."""

    caller: Caller
    run: str
    session: str | None


class InputImages:
    """Stores the images of runs."""

    def __init__(self, artifacts: ArtifactClient, access: ArtifactAccess, settings: GatewaySettings) -> None:
        self._artifacts = artifacts
        self._access = access
        self._settings = settings
        self._cleaner = ImageCleaner(settings)

    async def store(self, caller: Caller, run: str, session: str | None, images: list[ImageInput]) -> list[ImageRef]:
        """Return references to the images, in their order; the images are kept as long as the run.

        `session`: that of the run, None if it was requested without one.

        Raises ImageInvalid, ImageTooLarge, InvalidInput for an artifact that does not exist, and StorageUnavailable.
        """
        owner = _Owner(caller, run, session)
        if len(images) > self._settings.max_images:
            raise InvalidInput("images", f"at most {self._settings.max_images} images are taken")
        stored = [await self._find(owner, number, image) for number, image in enumerate(images)]
        self._check_sizes(
            [ref.size if ref else _decoded_size(image) for image, ref in zip(images, stored, strict=True)]
        )
        return [
            await self._reference(owner, number, image, ref)
            for number, (image, ref) in enumerate(zip(images, stored, strict=True))
        ]

    async def _find(self, owner: _Owner, number: int, image: ImageInput) -> ArtifactRef | None:
        """Return the artifact that the image names; None for one that is sent as `data`."""
        if image.artifact_id is None:
            return None
        try:
            found = await self._access.get(owner.caller, image.artifact_id)
        except ArtifactNotFound as error:
            raise _unknown(number) from error
        if found.session_id is not None and found.session_id != owner.session:
            raise InvalidInput(
                f"images.{number}.artifact_id",
                "the artifact belongs to another session; ask with its session_id, upload it without one, "
                "or send it as `data`",
            )
        if found.ref.mime_type not in _TYPES:
            raise ImageInvalid(number, f"the artifact is no image that models see; {_TYPES_IN_WORDS}")
        return found.ref

    def _check_sizes(self, sizes: list[int]) -> None:
        limit, total, total_limit = self._settings.max_image_bytes, 0, self._settings.max_images_bytes
        for number, size in enumerate(sizes):
            total += size
            if size > limit:
                raise ImageTooLarge(number, too_heavy(size, limit))
            if total > total_limit:
                raise ImageTooLarge(
                    number,
                    f"with it the images have more than {total_limit} bytes together; "
                    "leave some out or make them smaller",
                )

    async def _reference(self, owner: _Owner, number: int, image: ImageInput, ref: ArtifactRef | None) -> ImageRef:
        """Return the reference to a clean image, which is stored first where it is new."""
        if ref is None or ref.namespace != INPUT_IMAGE or ref.json_type is not None:
            async with self._cleaner.slots:
                if ref is None:
                    declared, name = _declared_type(number, image.data or ""), image.filename
                    data = await asyncio.to_thread(_decoded, number, image.data or "")
                else:
                    declared, name = ref.mime_type, image.filename or ref.filename
                    try:
                        _, data = await self._artifacts.read(
                            owner.caller.tenant, ref.artifact_id, limit=self._settings.max_image_bytes
                        )
                    except ArtifactNotFound as error:  # It has just been deleted.
                        raise _unknown(number) from error
                clean = await self._clean(number, data, declared)
                digest = await asyncio.to_thread(hashlib.sha256, clean)
                ref = await self._artifacts.put(
                    owner.caller.tenant,
                    clean,
                    session=owner.session,
                    run=owner.run,
                    namespace=INPUT_IMAGE,
                    filename=name,
                    mime_type=declared,
                    artifact_id=image_id(owner.run, number, digest.hexdigest()),
                )
        logger.debug("image_taken", run_id=owner.run, number=number, image=f"<image {ref.mime_type} {ref.size} bytes>")
        return ImageRef(
            artifact_id=ref.artifact_id,
            mime_type=cast("ImageType", ref.mime_type),
            filename=ref.filename,
            detail=image.detail,
        )

    async def _clean(self, number: int, data: bytes, declared: str) -> bytes:
        kind = image_type(data)
        if kind is None:
            raise ImageInvalid(number, f"its bytes are no image that models see; {_TYPES_IN_WORDS}")
        if declared != kind:
            raise ImageInvalid(number, f"its bytes are {kind}, not what it is said to be; say {kind}")
        try:
            return await self._cleaner.clean(data, kind)
        except ImageRefused as refusal:
            shown = f"<image {kind} {len(data)} bytes>"
            logger.info("image_refused", number=number, reason=refusal.reason, image=shown)
            raise (ImageTooLarge if refusal.too_large else ImageInvalid)(number, refusal.reason) from None
        except CleaningFailed as failure:
            if failure.retryable:
                raise TryAgain("The gateway cannot start a process for the image.") from None
            raise Problem from None


def _unknown(number: int) -> InvalidInput:
    return InvalidInput(f"images.{number}.artifact_id", "there is no such artifact; upload it, or send it as `data`")


def _prefix(data: str) -> re.Match[str] | None:
    return _DATA_URL_PREFIX.match(data, 0, _MAX_PREFIX_CHARACTERS)


def _decoded_size(image: ImageInput) -> int:
    data = image.data or ""
    prefix = _prefix(data)
    return (len(data) - (prefix.end() if prefix else 0)) // 4 * 3 - data[-2:].count("=")


def _declared_type(number: int, data: str) -> str:
    """Return the type that a data URL names. Raises ImageInvalid."""
    prefix = _prefix(data)
    if prefix is None:
        raise ImageInvalid(number, "`data` is no data URL in base64; it begins like data:image/png;base64,")
    name = prefix[1].lower()
    kind = _ALIASES.get(name, name)
    if kind not in _TYPES:
        raise ImageInvalid(number, f"`data` is said to be something that models do not see; {_TYPES_IN_WORDS}")
    return kind


def _decoded(number: int, data: str) -> bytes:
    """Return the bytes of a data URL. Raises ImageInvalid."""
    prefix = _prefix(data)
    try:
        return binascii.a2b_base64(data[prefix.end() if prefix else 0 :], strict_mode=True)
    except ValueError:
        raise ImageInvalid(
            number, "`data` is not base64 as RFC 4648 4 has it: its alphabet, its padding, no line breaks"
        ) from None
