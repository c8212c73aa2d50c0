"""The operations of the store: store bytes, return them, list and delete artifacts; and the media types of bytes.

Rule 1: bytes are written and verified before the reference. Every reference has its bytes.
Rule 2: a put may be repeated. The artifact id, made by the caller, and the digest identify a repetition.
Rule 3: an artifact that the caller may not see does not exist. Unknown, expired, deleted and foreign ids get the same
answer.
Rule 4: bytes are stored unchanged in the bucket, one object per artifact, and nowhere else: not in logs, errors or
references.
Rule 5: a type with a signature (an image, a PDF, an archive) is accepted only if the bytes begin with that signature.
Bytes with a signature are not accepted as another type, least of all as text or JSON. Any other type is accepted as
declared: readers never let a browser guess it (`nosniff`) or execute it.

The table of signatures is our own: those that matter to models and browsers fit on ten lines, and a library for
hundreds of formats would have to be trusted with all bytes from strangers.
"""

import asyncio
import codecs
import hashlib
import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, get_args

import structlog

from contracts import artifacts
from contracts.artifacts import ArtifactRef, ImageType, PutArtifact, image_type
from contracts.wire.keys import new_object_name, object_key
from contracts.wire.names import unix_ms
from services.artifact_store.bucket import Bucket, BytesMissing
from services.artifact_store.entries import ArtifactEntry, ArtifactKeys, Reference, References, Unfinished
from services.artifact_store.settings import ArtifactStoreSettings
from services.artifact_store.sweeps import Deletions
from services.messaging.errors import Outdated
from services.shared.artifacts.errors import ArtifactInvalid, ArtifactNotFound, ArtifactTooLarge, StorageUnavailable

HEAD_BYTES = 4096
"""Bytes at the beginning that are inspected."""
OCTETS = "application/octet-stream"
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_MIME_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}", re.ASCII)
_PARAMETERS = re.compile(r"(; ?[a-z0-9_-]+=([A-Za-z0-9_.+-]+|\"[ !#-\[\]-~]*\"))*", re.ASCII)
_JSON_START = re.compile(rb"[\s]*(?:[\[{\"0-9-]|true|false|null)")
_FILENAME_CHARACTERS = 255

_SIGNATURES: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"%PDF-"), "application/pdf"),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"), "application/zip"),
    (re.compile(rb"\x1f\x8b\x08"), "application/gzip"),
)
_SIGNED = {*get_args(ImageType), *(kind for _, kind in _SIGNATURES)}
_ALIASES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "application/x-gzip": "application/gzip",
    "text/json": _JSON,
}
_CONTAINERS = {"application/zip": ("application/",), "application/gzip": ("application/",)}
"""Type prefixes that are allowed for a shared signature: documents, packages and notebooks are zip files."""
logger = structlog.get_logger(__name__)
_DAY_S = 86_400
_INLINE_HASH_BYTES = 128 << 10
"""Fewer bytes are hashed without a thread."""
_TRUSTED_JSON_TYPES = frozenset({"dict", "list", "str", "int", "float", "bool"})
"""JSON values of a tool's result keep their type, whatever their text begins with."""


def signature(head: bytes) -> str | None:
    """Return the type whose signature the bytes begin with, or None."""
    return image_type(head) or next((kind for pattern, kind in _SIGNATURES if pattern.match(head)), None)


def sniffed(head: bytes, *, whole: bool) -> str:
    """Return the type of bytes without a declared one. `whole`: `head` is all of them, which JSON needs."""
    found = signature(head)
    if found is not None:
        return found
    try:
        # A character that is cut off at the end of `head` counts as complete.
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return OCTETS
    if any(ord(character) < ord(" ") and character not in "\t\n\r\f" for character in text):
        return OCTETS
    if whole and head.lstrip()[:1] in {b"{", b"["}:
        try:
            json.loads(head)
        except (ValueError, RecursionError):
            return _TEXT
        return _JSON
    return _TEXT


def checked_mime_type(declared: str | None, head: bytes, *, whole: bool) -> str:
    """Return the type to store. Raises ArtifactInvalid when the bytes contradict the declared type."""
    name, _, parameters = (declared or OCTETS).strip().partition(";")
    name, parameters = name.strip().lower(), f"; {parameters.strip()}" if parameters.strip() else ""
    if not _MIME_TYPE.fullmatch(name) or not _PARAMETERS.fullmatch(parameters):
        raise ArtifactInvalid("the media type is not well-formed")
    name = _ALIASES.get(name, name)
    if name == OCTETS:
        return sniffed(head, whole=whole)
    found = signature(head)
    if name in _SIGNED and name != found:
        raise ArtifactInvalid(f"the bytes are not {name}")
    if found is not None and name != found and not name.startswith(_CONTAINERS.get(found, ())):
        raise ArtifactInvalid(f"the bytes are {found}, not {name}")
    if name == _JSON and (found is not None or (head and not _JSON_START.match(head))):
        raise ArtifactInvalid(f"the bytes are not {name}")
    return name + parameters


def clean_filename(given: str | None) -> str | None:
    """Return a file name of at most 255 characters, without folders and invisible characters; None if that is empty."""
    if not given:
        return None
    last = re.split(r"[/\\]", given)[-1]
    # Categories C*: control and format characters (a right-to-left mark turns `gpj.exe` around), surrogates,
    # unassigned.
    shown = "".join(character for character in last if not unicodedata.category(character).startswith("C")).strip(" .")
    return shown[:_FILENAME_CHARACTERS] or None


class Done(NamedTuple):
    """A put that is done."""

    ref: ArtifactRef
    warning: str | None = None


class ArtifactStore:
    """The store. Every method raises BusError while NATS does not answer, StorageUnavailable while S3 does not."""

    def __init__(
        self,
        bucket: Bucket,
        references: References,
        artifact_keys: ArtifactKeys,
        deletions: Deletions,
        settings: ArtifactStoreSettings,
    ) -> None:
        self._bucket = bucket
        self._references = references
        self._artifact_keys = artifact_keys
        self._deletions = deletions
        self._settings = settings

    async def put(self, put: PutArtifact, body: bytes) -> Done:
        """Store bytes that came with the request."""
        if len(body) != put.size:
            raise ArtifactInvalid(f"received {len(body)} bytes; {put.size} were announced")
        mime_type = self.mime_type(put, body[:HEAD_BYTES])

        async def hashed() -> str:
            is_small = len(body) < _INLINE_HASH_BYTES
            return (hashlib.sha256(body) if is_small else await asyncio.to_thread(hashlib.sha256, body)).hexdigest()

        digest, entry = await asyncio.gather(hashed(), self.begin(put))
        if digest != put.sha256:
            raise ArtifactInvalid("the bytes do not match the announced digest")
        if isinstance(entry, Done):
            return entry
        writing = asyncio.gather(self._bucket.write(entry.object_key, body), self._references.add_listing(entry))
        return await self._store(put, entry, writing, lambda: mime_type)

    async def begin(self, put: PutArtifact) -> ArtifactEntry | Done:
        """Return the pending entry, or what this put has led to if it was done before.

        Attempts of the same put at the same time share an entry, since they write the same bytes.

        Raises ArtifactInvalid when another artifact has the id, ArtifactTooLarge above the store's limit.
        """
        if put.size > self._settings.artifact_max_bytes:
            raise ArtifactTooLarge(f"{put.size} bytes; at most {self._settings.artifact_max_bytes} are allowed")
        # Most ids are new, so nothing is read before the first try.
        entry, sequence = None, 0
        while True:
            with suppress(Outdated):
                if entry is None:
                    reference = Reference(
                        ref=self._ref(put, put.mime_type or OCTETS),
                        session_id=put.session_id,
                        run_id=put.run_id,
                        user_id=put.user_id,
                        object_name=new_object_name(put.artifact_id),
                    )
                    pending = Unfinished(state="pending", reference=reference)
                    return await self._references.write(put.tenant, put.artifact_id, pending, after=sequence)
                match entry.content:
                    case Reference(is_expired=False) as found:
                        if not found.is_of(put):
                            raise ArtifactInvalid("another artifact has this id")
                        return Done(found.ref, await self._artifact_keys.assign(entry))
                    case Unfinished(state="pending", reference=reference) if reference.is_of(put):
                        return entry
                await self._deletions.delete(entry)
            entry, sequence = await self._references.read(put.tenant, put.artifact_id)

    def mime_type(self, put: PutArtifact, head: bytes) -> str:
        """Return the type to store. Raises ArtifactInvalid when the bytes contradict the declared type."""
        if put.json_type in _TRUSTED_JSON_TYPES and put.mime_type:
            return put.mime_type
        return checked_mime_type(put.mime_type, head, whole=put.size <= len(head))

    async def put_stream(
        self, put: PutArtifact, entry: ArtifactEntry, chunks: Iterable[bytes], mime_type: Callable[[], str]
    ) -> Done:
        """Store bytes from chunks, which a thread reads. `mime_type` is called after that."""

        async def write() -> None:
            await self._references.add_listing(entry)
            await self._bucket.write_stream(entry.object_key, chunks, put.size)

        return await self._store(put, entry, write(), mime_type)

    async def _store(
        self, put: PutArtifact, entry: ArtifactEntry, writing: Awaitable[object], mime_type: Callable[[], str]
    ) -> Done:
        """Write the reference after the bytes, then what its artifact key names."""
        try:
            await writing
            ref = self._ref(put, mime_type())
            stored = await self._references.replace(entry, entry.reference.model_copy(update={"ref": ref}))
        except Outdated:  # Another attempt of this put has led to something, or nothing names these bytes any more.
            now, _ = await self._references.read(entry.tenant, entry.artifact)
            if now is not None and isinstance(now.content, Reference) and now.object_key == entry.object_key:
                return Done(now.content.ref, await self._artifact_keys.assign(now))
            await self._bucket.remove(entry.object_key)
            raise StorageUnavailable("the put took so long that its bytes were deleted") from None
        logger.info(
            "artifact_stored",
            tenant=put.tenant,
            artifact_id=put.artifact_id,
            run_id=put.run_id,
            size=put.size,
            object_name=entry.reference.object_name,
        )
        return Done(ref, await self._artifact_keys.assign(stored))

    def _ref(self, put: PutArtifact, mime_type: str) -> ArtifactRef:
        now, ttl_s = unix_ms(), put.ttl_s
        if ttl_s is None and put.run_id is None:
            ttl_s = int(self._settings.artifact_default_days * _DAY_S)
        return ArtifactRef(
            **put.model_dump(include=ArtifactRef.model_fields.keys() - {"mime_type", "filename"}),
            mime_type=mime_type,
            filename=clean_filename(put.filename),
            created_at=now,
            expires_at=now + ttl_s * 1000 if ttl_s is not None else None,
        )

    async def head(self, request: artifacts.HeadArtifact) -> artifacts.StoredArtifact:
        """Return the reference with its session and run. Raises ArtifactNotFound."""
        return (await self._references.resolve(request)).stored()

    async def get(self, request: artifacts.GetArtifact) -> tuple[ArtifactRef, bytes]:
        """Return the reference with the bytes of the range, which ends with the artifact. Raises ArtifactNotFound."""
        reference = await self._references.resolve(request)
        length = min(request.length, reference.ref.size - request.offset)
        if length <= 0:
            return reference.ref, b""
        key = object_key(request.tenant, reference.object_name)
        try:
            return reference.ref, await self._bucket.read(key, request.offset, length, reference.ref.size)
        except (BytesMissing, StorageUnavailable) as error:
            if is_missing := isinstance(error, BytesMissing):
                logger.warning("artifact_bytes_missing", key=key)
            await self._references.resolve(request)  # It may have been deleted a moment ago.
            if is_missing:
                raise StorageUnavailable("the S3 server does not have the bytes") from None
            raise

    async def list(self, request: artifacts.ListArtifacts) -> artifacts.ArtifactPage:
        """Return a page of the artifacts of a session or run."""
        found = self._references if request.own_id is None else self._artifact_keys
        return await found.page(request)

    async def delete(self, request: artifacts.DeleteArtifact) -> artifacts.ArtifactDeleted:
        """Delete an artifact: for its readers at once, its bytes soon. Raises ArtifactNotFound."""
        await self._references.resolve(request)
        while True:
            entry, _ = await self._references.read(request.tenant, request.artifact_id)
            if entry is None or not isinstance(entry.content, Reference):
                raise ArtifactNotFound
            with suppress(Outdated):
                await self._deletions.begin(entry)
                break
        logger.info("artifact_deleted", tenant=request.tenant, artifact_id=request.artifact_id)
        return artifacts.ArtifactDeleted(artifact_id=request.artifact_id)
