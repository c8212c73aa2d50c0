"""The operations of the store: store bytes, return them, list and delete references.

Rule 1: bytes are written and verified before the reference. Every reference has its bytes.
Rule 2: a put may be repeated. The artifact id, made by the caller, and the digest identify a repetition.
Rule 3: an artifact that the caller may not see does not exist. Unknown, expired, deleted and foreign ids get the same
answer.
Rule 4: bytes are stored unchanged in the bucket, and nowhere else: not in logs, errors or references.
"""

import asyncio
import hashlib
import sys
from collections.abc import Callable, Iterable

import structlog

from contracts.artifacts import (
    ArtifactDeleted,
    ArtifactPage,
    ArtifactRef,
    DeleteArtifact,
    GetArtifact,
    HeadArtifact,
    ListArtifacts,
    PresignArtifact,
    PresignedUrl,
    PutArtifact,
    StoredArtifact,
)
from contracts.keys import object_key, place
from services.artifact_store.blobs import Blobs, Claim, now
from services.artifact_store.bucket import Bucket
from services.artifact_store.errors import BytesMissing, EntryChanged
from services.artifact_store.mime_types import HEAD_BYTES, checked_mime_type, clean_filename
from services.artifact_store.references import Reference, References
from services.artifact_store.settings import ArtifactStoreSettings
from services.shared.artifacts.errors import ArtifactInvalid, ArtifactTooLarge, StorageUnavailable

logger = structlog.get_logger(__name__)

_DAY_S = 86_400
_INLINE_HASH_BYTES = 128 << 10
"""Fewer bytes are hashed without a thread."""
_TRUSTED_JSON_TYPES = frozenset({"dict", "list", "str", "int", "float", "bool"})
"""JSON values of a tool's result keep their type, whatever their text begins with."""


class ArtifactStore:
    """The store. `on_deleted` gets tenant, blob and artifact id of every deleted reference."""

    def __init__(
        self,
        bucket: Bucket,
        blobs: Blobs,
        references: References,
        settings: ArtifactStoreSettings,
        on_deleted: Callable[[str, str, str], None],
    ) -> None:
        self._bucket = bucket
        self._blobs = blobs
        self._references = references
        self._settings = settings
        self._on_deleted = on_deleted

    async def find_repeat(self, put: PutArtifact) -> ArtifactRef | None:
        """Return the reference if this put was done before.

        Raises ArtifactInvalid when another artifact has the id, ArtifactTooLarge above the store's limit.
        """
        if put.size > self._settings.artifact_max_bytes:
            raise ArtifactTooLarge(f"{put.size} bytes; at most {self._settings.artifact_max_bytes} are allowed")
        found = await self._references.find(put.tenant, put.artifact_id)
        if found is None:
            return None
        if (found.ref.sha256, found.ref.size, found.session_id, found.run_id) != (
            put.sha256,
            put.size,
            put.session_id,
            put.run_id,
        ):
            raise ArtifactInvalid("another artifact has this id")
        return found.ref

    async def put(self, put: PutArtifact, body: bytes) -> ArtifactRef:
        """Store bytes that came with the request."""
        if len(body) != put.size:
            raise ArtifactInvalid(f"received {len(body)} bytes; {put.size} were announced")
        mime_type = self.mime_type(put, body[:HEAD_BYTES])
        known, digest, claim = await asyncio.gather(self.find_repeat(put), _digest(body), self.claim(put))
        if digest != put.sha256:
            raise ArtifactInvalid("the bytes do not match the announced digest")
        if known is not None:
            return known
        await asyncio.gather(self._write(claim, body), self.add_listing(put))
        return await self.write_reference(put, claim, mime_type)

    async def _write(self, claim: Claim, body: bytes) -> None:
        if not await self.has_bytes(claim, len(body)):
            await self._bucket.write(claim.object_key, body)

    def mime_type(self, put: PutArtifact, head: bytes) -> str:
        """Return the type to store. Raises ArtifactInvalid when the bytes contradict the declared type."""
        if put.json_type in _TRUSTED_JSON_TYPES and put.mime_type:
            return put.mime_type
        return checked_mime_type(put.mime_type, head, whole=put.size <= len(head))

    async def claim(self, put: PutArtifact) -> Claim:
        """Add the artifact to the users of its bytes."""
        where = place(put.session_id, put.run_id)
        return await self._blobs.claim(put.tenant, put.sha256, put.size, put.artifact_id, where)

    async def add_listing(self, put: PutArtifact) -> None:
        """Write the list entry of the reference that is about to be written."""
        await self._references.add_listing(
            put.tenant, place(put.session_id, put.run_id), put.artifact_id, self._ttl_s(put)
        )

    async def has_bytes(self, claim: Claim, size: int) -> bool:
        """Whether the bytes of a claim are already stored."""
        return not claim.fresh and await self._bucket.size(claim.object_key) == size

    async def head_of(self, claim: Claim, size: int) -> bytes:
        """Return the beginning of stored bytes."""
        return await self._read(claim.object_key, 0, min(size, HEAD_BYTES))

    async def stream(self, claim: Claim, chunks: Iterable[bytes], size: int) -> None:
        """Write bytes from chunks, which a thread reads, and check their number."""
        await self._bucket.write_stream(claim.object_key, chunks, size)
        if await self._bucket.size(claim.object_key) != size:
            raise StorageUnavailable("the S3 server accepted the bytes but does not hold them")

    async def write_reference(self, put: PutArtifact, claim: Claim, mime_type: str) -> ArtifactRef:
        """Write the reference after the bytes, and return the part that callers see."""
        ttl_s = self._ttl_s(put)
        ref = ArtifactRef(
            artifact_id=put.artifact_id,
            mime_type=mime_type,
            size=put.size,
            sha256=put.sha256,
            filename=clean_filename(put.filename),
            namespace=put.namespace,
            json_type=put.json_type,
            items=put.items,
            artifact_type=put.artifact_type,
            created_at=now(),
            expires_at=now() + ttl_s * 1000 if ttl_s is not None else None,
        )
        reference = Reference(ref=ref, session_id=put.session_id, run_id=put.run_id, blob=claim.name)
        try:
            await self._references.write(claim, reference, ttl_s)
        except EntryChanged:
            raise StorageUnavailable("the put took so long that its bytes may have been deleted") from None
        logger.info(
            "artifact_stored",
            tenant=put.tenant,
            artifact_id=put.artifact_id,
            run_id=put.run_id,
            size=put.size,
            blob=claim.name,
        )
        return ref

    def _ttl_s(self, put: PutArtifact) -> int | None:
        if put.ttl_s is not None or put.run_id is not None:
            return put.ttl_s
        return int(self._settings.artifact_default_days * _DAY_S)

    async def head(self, asked: HeadArtifact) -> StoredArtifact:
        """Return the reference with its session and run. Raises ArtifactNotFound."""
        return (await self._references.resolve(asked)).stored()

    async def get(self, asked: GetArtifact) -> tuple[ArtifactRef, bytes]:
        """Return the reference with the bytes of the range, which ends with the artifact. Raises ArtifactNotFound."""
        reference = await self._references.resolve(asked)
        length = min(asked.length, reference.ref.size - asked.offset)
        if length <= 0:
            return reference.ref, b""
        try:
            return reference.ref, await self._read(object_key(asked.tenant, reference.blob), asked.offset, length)
        except StorageUnavailable:
            await self._references.resolve(asked)  # It may have been deleted a moment ago.
            raise

    async def _read(self, key: str, offset: int, length: int) -> bytes:
        try:
            return await self._bucket.read(key, offset, length) if length else b""
        except BytesMissing:
            logger.warning("artifact_bytes_missing", key=key)
            raise StorageUnavailable("the S3 server does not have the bytes") from None

    async def list(self, asked: ListArtifacts) -> ArtifactPage:
        """Return a page of the artifacts of a session or run."""
        return await self._references.page(asked)

    async def delete(self, asked: DeleteArtifact) -> ArtifactDeleted:
        """Delete the reference. The bytes are deleted when nothing uses them. Raises ArtifactNotFound."""
        reference = await self._references.resolve(asked)
        await self._references.delete(asked.tenant, asked.artifact_id)
        self._on_deleted(asked.tenant, reference.blob, asked.artifact_id)
        logger.info("artifact_deleted", tenant=asked.tenant, artifact_id=asked.artifact_id)
        return ArtifactDeleted(artifact_id=asked.artifact_id)

    async def presign(self, asked: PresignArtifact) -> PresignedUrl:
        """Return a URL that needs no key. It expires no later than the artifact. Raises ArtifactNotFound."""
        reference = await self._references.resolve(asked)
        until, seconds = _valid(reference.ref, asked.expires_s)
        key = object_key(asked.tenant, reference.blob)
        url = self._bucket.signed_url(key, seconds, reference.ref.mime_type, reference.ref.filename)
        return PresignedUrl(url=url, expires_at=until)


def _valid(ref: ArtifactRef, seconds: int) -> tuple[int, int]:
    """Return until when (Unix ms) and for how many seconds a URL is valid: no longer than its artifact."""
    until = min(now() + seconds * 1000, ref.expires_at or sys.maxsize)
    return until, max(1, (until - now()) // 1000)


async def _digest(body: bytes) -> str:
    return _sha256(body) if len(body) < _INLINE_HASH_BYTES else await asyncio.to_thread(_sha256, body)


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
