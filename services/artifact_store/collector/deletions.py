"""Delete artifacts: their bytes, then what is known about them. Several instances may delete the same one at once.

A deletion that begins is stored first, so one that fails or is cut short is finished by the next sweep.
"""

import asyncio
from contextlib import suppress

import structlog

from services.artifact_store.objects.bucket import Bucket
from services.artifact_store.references.entries import ArtifactEntry, References, Unfinished
from services.messaging.errors import BusError
from services.shared.artifacts.errors import ArtifactFailed

logger = structlog.get_logger(__name__)


class Deletions:
    """Deletions of this instance, at once or in the background."""

    def __init__(self, references: References, bucket: Bucket) -> None:
        self._references = references
        self._bucket = bucket
        self._begun: asyncio.Queue[ArtifactEntry] = asyncio.Queue()

    async def begin(self, entry: ArtifactEntry) -> None:
        """Hide an artifact, and delete its bytes in the background. Raises Outdated.

        The next sweep repeats what fails in the background.
        """
        self._begun.put_nowait(await self._hide(entry))

    async def finish_forever(self) -> None:
        """Finish the deletions of `begin`, without end."""
        while True:
            entry = await self._begun.get()
            with suppress(ArtifactFailed, BusError):
                await self._finish(entry)

    async def delete(self, entry: ArtifactEntry) -> None:
        """Delete an artifact, or finish to delete it. Raises Outdated when another process was faster."""
        is_hidden = isinstance(entry.content, Unfinished) and entry.content.state == "deleting"
        await self._finish(entry if is_hidden else await self._hide(entry))

    async def _hide(self, entry: ArtifactEntry) -> ArtifactEntry:
        deleting = Unfinished(state="deleting", reference=entry.reference)
        return await self._references.replace(entry, deleting)

    async def _finish(self, entry: ArtifactEntry) -> None:
        await self._bucket.remove(entry.object_key)
        await self._references.remove(entry)
        logger.info("artifact_removed", tenant=entry.tenant, artifact_id=entry.artifact)
