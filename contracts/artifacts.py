"""References to bytes that travel apart from messages, and the words between a service and the artifact store.

Requests go to `artifact.<verb>`, each with the tenant on whose behalf it is made. The header `Runwire-Reply` of an
answer says `result`, or `failure` with a `Fault` as body; an artifact that is unknown and one of somebody else are the
same fault, `artifact_not_found`.

| subject | request | answer |
| --- | --- | --- |
| artifact.put | the bytes, at most MAX_PUT_BYTES; header ARTIFACT_HEADER: PutArtifact | ArtifactRef |
| artifact.open | PutArtifact | UploadOpened: where the bytes go, or the reference if it is stored already |
| artifact.chunk.<copy> | the next CHUNK_BYTES; headers UPLOAD_HEADER, SEQ_HEADER (from 0) | ChunkTaken; the last one brings the reference |
| artifact.get | GetArtifact | the bytes asked for, at most CHUNK_BYTES; header ARTIFACT_HEADER: ArtifactRef |
| artifact.head | HeadArtifact | StoredArtifact |
| artifact.list | ListArtifacts | ArtifactPage |
| artifact.delete | DeleteArtifact | ArtifactDeleted |
| artifact.presign | PresignArtifact | PresignedUrl |
| artifact.assemble | AssembleStream | AssembledStream: the value, or above 32 KiB the reference |

A chunk without bytes is a question: is the one with this number here and not answered yet? Otherwise it was lost, or
its answer was, and the upload has to begin again. A header's value is the message as JSON in ASCII. A put may be
repeated under the same `artifact_id`: the answer is the same reference.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Message
from .limits import CHUNK_BYTES, MAX_PIECES

ARTIFACT_HEADER, UPLOAD_HEADER, SEQ_HEADER = "Runwire-Artifact", "Runwire-Upload", "Runwire-Seq"

JsonType = Literal["dict", "list", "str", "int", "float", "bool", "bytes"]
ArtifactId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="UUIDv7, 32 lower-case hexadecimal digits")]
Digest = Annotated[
    str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the stored bytes, lower-case hexadecimal")
]
Tenant = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
Session = Annotated[str, Field(min_length=1, max_length=200)]
Run = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class ArtifactRef(Message):
    """Names an artifact of the caller's tenant. Whoever resolves it checks the tenant: the fields below prove nothing.

    `json_type` and `items` say what the bytes stand for, so that a placeholder can be made without fetching them. A
    `str` is stored as its UTF-8 text, `bytes` as they are, everything else as compact UTF-8 JSON; `size` counts these
    stored bytes.
    """

    artifact_id: ArtifactId
    mime_type: str
    size: int = Field(ge=0, description="bytes, as stored")
    sha256: Digest
    filename: str | None = None
    namespace: str | None = None
    json_type: JsonType | None = Field(default=None, description="None: a file that somebody uploaded")
    items: int | None = Field(default=None, ge=0, description="length of a list")
    artifact_type: str | None = Field(
        default=None, description="what it is for those who show it, as its tool said of its stream: `echarts`"
    )
    created_at: int | None = Field(default=None, description="Unix ms")
    expires_at: int | None = Field(default=None, description="Unix ms; None: kept as long as its run")


class PutArtifact(Message):
    """Keep these bytes. Repeating it is harmless: the id and the digest say that it is the same artifact."""

    tenant: Tenant
    artifact_id: ArtifactId = Field(description="made by the caller, once per artifact")
    size: int = Field(ge=0, description="bytes that follow")
    sha256: Digest
    session_id: Session | None = None
    run_id: Run | None = None
    namespace: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="what it is for, as `input_image`"
    )
    filename: str | None = Field(
        default=None, max_length=1000, description="for people; folders and control characters are dropped"
    )
    mime_type: str | None = Field(
        default=None, max_length=200, description="checked against the bytes; None: found out from them"
    )
    json_type: JsonType | None = None
    items: int | None = Field(default=None, ge=0)
    artifact_type: str | None = Field(default=None, max_length=200)
    ttl_s: int | None = Field(
        default=None, ge=1, le=315_360_000, description="seconds; None: as long as its run, or the store's default"
    )


class UploadOpened(Message):
    """Send the bytes in order to `subject`, at most `window` chunks unanswered. With `ref` there is nothing to send."""

    upload_id: str
    subject: str
    chunk_bytes: int
    window: int
    ref: ArtifactRef | None = None


class ChunkTaken(Message):
    """The chunk has been passed on. `ref`: it was the last, the artifact is stored."""

    received: int = Field(description="bytes so far")
    ref: ArtifactRef | None = None


class HeadArtifact(Message):
    """What is known about an artifact? A session or run that is given must be its own."""

    tenant: Tenant
    artifact_id: ArtifactId
    session_id: Session | None = None
    run_id: Run | None = None


class GetArtifact(HeadArtifact):
    """Give `length` bytes from `offset` on; fewer where it ends, none beyond."""

    offset: int = Field(default=0, ge=0)
    length: int = Field(default=CHUNK_BYTES, ge=0, le=CHUNK_BYTES)


class StoredArtifact(Message):
    """A reference and where it belongs."""

    ref: ArtifactRef
    session_id: str | None = None
    run_id: str | None = None


class ListArtifacts(Message):
    """Which artifacts belong to this session or run? In the order in which they were stored."""

    tenant: Tenant
    session_id: Session | None = None
    run_id: Run | None = None
    namespace: str | None = Field(default=None, max_length=64)
    limit: int = Field(default=100, ge=1, le=500, description="a page may hold fewer and still have a next one")
    cursor: int = Field(default=0, ge=0, description="`next_cursor` of the page before; 0: the first page")


class ArtifactPage(Message):
    """Artifacts in the order in which they were stored. `next_cursor` None: these were the last."""

    artifacts: list[StoredArtifact]
    next_cursor: int | None = None


class DeleteArtifact(HeadArtifact):
    """Forget the reference; the bytes go once no other reference needs them."""


class ArtifactDeleted(Message):
    """The reference is gone."""

    artifact_id: ArtifactId


class PresignArtifact(HeadArtifact):
    """Give a URL under which the S3 server returns the bytes to any client. Only for callers that reach that server."""

    expires_s: int = Field(default=300, ge=1, le=604_800)


class PresignedUrl(Message):
    """Valid until `expires_at`; it is a secret until then."""

    url: str = Field(repr=False)
    expires_at: int = Field(description="Unix ms")


class AssembleStream(Message):
    """Put a finished stream of pieces together, from what stands on the run's stream subject.

    Repeating it is harmless: what is kept under `artifact_id` is the answer. Where pieces are missing, it is
    `artifact_not_found`.
    """

    tenant: Tenant
    run_id: Run
    call_id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    stream_id: str = Field(max_length=200)
    pieces: int = Field(ge=1, le=MAX_PIECES, description="how many there are; their `seq` goes from 0 without a gap")
    since: int = Field(default=1, ge=1, description="sequence of the first piece in the stream RUNS, or any before it")
    artifact_id: ArtifactId = Field(description="made by the caller, once per stream")
    session_id: Session | None = None
    namespace: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="as of PutArtifact; so are the next two"
    )
    filename: str | None = Field(default=None, max_length=1000)
    ttl_s: int | None = Field(default=None, ge=1, le=315_360_000)


class AssembledStream(Message):
    """What a stream comes to: its value, with bytes as base64, or the reference under which it is kept."""

    json_type: Literal["list", "str", "bytes"] | None = Field(
        default=None, description="of `value`; None: there is a reference"
    )
    value: Any = None
    ref: ArtifactRef | None = None
