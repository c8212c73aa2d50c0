"""Clean the images in tool results as the gateway cleans those of users: only pixels, within the limits of an image.

Rule 1: an image artifact (bytes, base64 text, or an assembled stream) leaves the tool runner cleaned, or is dropped. A
warning of the run names what was dropped; the call succeeds.
Rule 2: images inside a larger JSON value are not changed: no reader treats them as images.
"""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, get_args

import structlog

from contracts.artifacts.images import ImageType, image_in, image_type
from contracts.artifacts.references import ArtifactRef
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactNotFound
from services.shared.images.cleaner import CleaningFailed, ImageCleaner, ImageRefused, ImageSettings, too_heavy

logger = structlog.get_logger(__name__)

_TYPES = frozenset(get_args(ImageType))


class Put(Protocol):
    """Stores bytes as the artifact of a call at a path."""

    async def __call__(self, path: str, data: bytes) -> ArtifactRef:
        """Return the reference. Raises ArtifactFailed."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Artifacts whose images contain nothing but pixels."""

    artifacts: dict[str, Any]
    warnings: list[str]
    changed: bool


class ToolImages:
    """Cleans images; a few at once for all calls together."""

    def __init__(self, limits: ImageSettings) -> None:
        self._cleaner = ImageCleaner(limits)
        self._max_bytes = limits.max_image_bytes

    async def clean(
        self, tool: str, tenant: str, artifacts: Mapping[str, Any], client: ArtifactClient, put: Put
    ) -> Cleaned:
        """Return the artifacts of a call with cleaned images. Raises ArtifactFailed."""
        warnings: dict[str, str] = {}

        async def one(path: str, value: Any) -> Any:
            try:
                return await self._one(path, value, tenant, client, put)
            except ImageRefused as refusal:
                warnings[path] = f"image_dropped: {path} of {tool}: {refusal.reason}"
                logger.info("image_refused", reason=refusal.reason)
            except CleaningFailed as failure:
                warnings[path] = f"image_dropped: {path} of {tool}: {failure}"
            return None

        found = dict(
            zip(artifacts, await asyncio.gather(*(one(path, value) for path, value in artifacts.items())), strict=True)
        )
        kept = {path: value for path, value in found.items() if path not in warnings}
        changed = any(found[path] is not value for path, value in artifacts.items())
        return Cleaned(kept, [warnings[path] for path in artifacts if path in warnings], changed)

    async def _one(self, path: str, value: Any, tenant: str, client: ArtifactClient, put: Put) -> Any:
        """Return the cleaned value, or the value itself if it is not an image.

        Raises ImageRefused, CleaningFailed, ArtifactFailed.
        """
        match value:
            case bytes():
                return value if image_type(value) is None else await self._clean(value)
            case str():
                data = await asyncio.to_thread(image_in, value) if len(value) > self._max_bytes else image_in(value)
                return base64.b64encode(await self._clean(data)).decode() if data else value
            case ArtifactRef(mime_type=kind) if kind in _TYPES:
                return await self._stored(path, value, tenant, client, put)
        return value

    async def _stored(self, path: str, ref: ArtifactRef, tenant: str, client: ArtifactClient, put: Put) -> ArtifactRef:
        if ref.size > self._max_bytes:
            await _forget(tenant, ref, client)
            raise ImageRefused(too_heavy(ref.size, self._max_bytes), too_large=True)
        try:
            _, data = await client.read(tenant, ref.artifact_id, limit=self._max_bytes)
            kept = await put(path, await self._clean(data))
        except ImageRefused:
            await _forget(tenant, ref, client)
            raise
        if kept.artifact_id != ref.artifact_id:
            await _forget(tenant, ref, client)
        return kept

    async def _clean(self, data: bytes) -> bytes:
        kind = image_type(data)
        if kind is None:
            return data
        async with self._cleaner.slots:
            return (await self._cleaner.clean(data, kind)).data


async def _forget(tenant: str, ref: ArtifactRef, client: ArtifactClient) -> None:
    try:
        await client.delete(tenant, ref.artifact_id)
    except ArtifactNotFound:
        return  # An earlier handling of this call deleted it.
