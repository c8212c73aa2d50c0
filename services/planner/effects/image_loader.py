"""Puts the bytes of images into one model request at a time; the conversation holds references only.

Rule 1: the bytes are in memory only: in a cache of a fixed size, and in the request to the provider. A printed request
shows `<image image/png 12345 bytes>` instead.
Rule 2: an image that no longer exists is left out, with a warning of the run. While the store is unavailable, the
request waits.
Rule 3: an image goes to a provider only under the type that its own bytes have.
Rule 4: the file name of an image is for people, and is never logged.
Rule 5: before a cached image is used, the store is asked whether it still exists, so a deleted or expired image is not
shown any more. Images that are not used for five minutes leave the cache.
Rule 6: an image of a session is shown in that session only. This does not depend on the checks of the gateway.
"""

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, replace

import structlog

from contracts.artifacts import image_type
from services.messaging.connection import Bus
from services.planner.conversation.encoding import IMAGE, Message, Messages, Part
from services.planner.models.errors import ModelFailed
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactInvalid, ArtifactNotFound, ArtifactTooLarge

logger = structlog.get_logger(__name__)

_Key = tuple[str, str, str]
"""Tenant, artifact, and the run if only its own artifacts may be fetched, else empty."""
MAX_IMAGE_BYTES = 40 << 20
CACHE_CHARACTERS = 64 << 20
CACHE_TTL_S = 300.0
"""Longer than most models take between two calls of a run."""
STORE_TIMEOUT_S = 120.0
REMOVED_TEXT = "[an image was here; a person has removed it]"
UNAVAILABLE_TEXT = "[an image was here; it is not available any more]"


class DataUrl(str):
    """The bytes of an image as a data URL. Its repr shows none of them."""

    __slots__ = ()

    def __repr__(self) -> str:
        head, _, body = self.partition(",")
        size = len(body) * 3 // 4 - body[-2:].count("=")
        return f"<image {head.removeprefix('data:').removesuffix(';base64')} {size} bytes>"


class ImageLoader:
    """Loads images from the artifact store for model requests."""

    def __init__(self, bus: Bus, *, cached_s: float = CACHE_TTL_S) -> None:
        self._client = ArtifactClient(bus, patience_s=STORE_TIMEOUT_S)
        self._known: OrderedDict[_Key, tuple[DataUrl, asyncio.TimerHandle]] = OrderedDict()
        self._cached_s = cached_s
        self._size = 0

    async def filled(
        self, tenant: str, run: str, session: str | None, messages: Messages, removed: Collection[str] = ()
    ) -> tuple[Messages, list[str]]:
        """Return the messages with bytes in the places of references, and a warning per image that is left out.

        Only pieces that are objects can hold images. `removed`: ids of the images that a person has removed.

        Raises ModelFailed: retryable when the store stays unavailable, final when an image belongs to another session.
        """
        warnings: list[str] = []
        viewer = _Viewer(tenant, run, session or None, removed)
        pieces = [
            piece if isinstance(piece, bytes) else await self._filled(viewer, piece, warnings)
            for piece in messages.pieces
        ]
        return replace(messages, pieces=tuple(pieces)), warnings

    async def _filled(self, viewer: "_Viewer", message: Message, warnings: list[str]) -> Message:
        content = message.get("content")
        if not isinstance(content, list):
            return message
        parts = []
        for part in content:
            if part["type"] != IMAGE:
                parts.append(part)
                continue
            if part.get("artifact_id") in viewer.removed:
                parts.append({"type": "text", "text": REMOVED_TEXT})
                continue
            try:
                url = await self._url(viewer, part)
            except _Unavailable as gone:
                warnings.append(f"image_dropped: {part['name']}: {gone}")
                parts.append({"type": "text", "text": UNAVAILABLE_TEXT})
            else:
                logger.debug("image_shown", run_id=viewer.run, artifact_id=part.get("artifact_id"), image=repr(url))
                detail = {"detail": part["detail"]} if "detail" in part else {}
                parts.append({"type": "image_url", "image_url": {"url": url, **detail}})
        return {**message, "content": parts}

    async def _url(self, viewer: "_Viewer", part: Part) -> DataUrl:
        if "inline" in part:
            return _data_url(base64.b64decode(part["inline"]))
        artifact, only_of = part["artifact_id"], viewer.run if part.get("of_run") else None
        key = (viewer.tenant, artifact, only_of or "")
        known = self._known.get(key)
        try:
            stored = await self._client.head(viewer.tenant, artifact, run=only_of)
            if stored.session_id not in {None, viewer.session}:
                raise ModelFailed(
                    "bad_request", f"the image {artifact} belongs to another session", elsewhere=False, calls=0
                )
            if known is not None:
                url = known[0]
            else:
                download = await self._client.get(viewer.tenant, artifact, run=only_of)
                url = await asyncio.to_thread(_data_url, await download.read(MAX_IMAGE_BYTES))
        except ArtifactNotFound:
            self._drop(key)
            raise _Unavailable("it is not stored any more") from None
        except (ArtifactTooLarge, ArtifactInvalid) as error:
            raise _Unavailable(error.reason) from None
        except ArtifactFailed as error:
            raise ModelFailed(
                "storage_unavailable", f"an image could not be fetched: {error.reason}", retryable=True, calls=0
            ) from None
        self._drop(key)
        self._known[key] = url, asyncio.get_running_loop().call_later(self._cached_s, self._drop, key)
        self._size += len(url)
        while self._size > CACHE_CHARACTERS:
            self._drop(next(iter(self._known)))
        return url

    def _drop(self, key: _Key) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            url, timer = known
            timer.cancel()
            self._size -= len(url)


@dataclass(frozen=True, slots=True)
class _Viewer:
    """The run whose model is shown the images."""

    tenant: str
    run: str
    session: str | None
    removed: Collection[str]


class _Unavailable(Exception):
    """An image has to be left out; the message says why."""


def _data_url(data: bytes) -> DataUrl:
    kind = image_type(data)
    if kind is None:
        raise _Unavailable("it is no image that models take")
    return DataUrl(f"data:{kind};base64,{base64.b64encode(data).decode()}")
