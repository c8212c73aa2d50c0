"""References to bytes that are stored apart from messages, images among them, and the messages to the artifact store.

Requests go to `artifact.<verb>`, each with the tenant on whose behalf it is made. The header `Runwire-Reply` of a reply
says `result`, or `failure` with a `Fault` as body. Unknown artifacts and those of another tenant give the same fault,
`artifact_not_found`.

| subject | request | reply |
| --- | --- | --- |
| artifact.put | the bytes, at most MAX_PUT_BYTES; header ARTIFACT_HEADER: PutArtifact | ArtifactRef |
| artifact.open | PutArtifact | UploadOpened: the subject for the bytes, or the reference if they are stored |
| artifact.chunk.<instance> | the next CHUNK_BYTES; headers UPLOAD_HEADER, SEQ_HEADER (from 0) | ChunkTaken |
| artifact.get | GetArtifact | the requested bytes, at most CHUNK_BYTES; header ARTIFACT_HEADER: ArtifactRef |
| artifact.head | HeadArtifact | StoredArtifact |
| artifact.list | ListArtifacts | ArtifactPage |
| artifact.delete | DeleteArtifact | ArtifactDeleted |
| artifact.assemble | AssembleStream | AssembledStream: the value, or above 32 KiB the reference |

A chunk without bytes asks whether the chunk of this number has arrived and is not acknowledged yet. If not, the chunk
or its reply was lost, and the upload has to start again. A message in a header is JSON in ASCII. A put may be repeated
under the same `artifact_id`: the reply is the same reference.

A tool may give an artifact an id of its own, any text (`own_id`). In a session, and in a run, such an id names the
newest artifact to which its tool, the namespace, gave it: the one whose reference was written last. If a put is not
alone with its id, its reply has the header WARNING_HEADER, again when it is repeated.
"""

import base64
import re
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from .wire.base import CHUNK_BYTES, MAX_PIECES, PART_BYTES, HttpInput, Message, is_absent
from .wire.faults import Fault

ARTIFACT_HEADER, UPLOAD_HEADER, SEQ_HEADER = "Runwire-Artifact", "Runwire-Upload", "Runwire-Seq"
GIVEN_HEADER = "Runwire-Given"
BY_REFERENCE = "by_reference"
"""In the input schema of an argument: the tool gets the reference to an artifact, and reads its bytes (`BytesWanted`).
"""
WARNING_HEADER = "Runwire-Warning"
"""What the caller of a put should know although it succeeded: one sentence in ASCII."""

SAID = ".said"
"""The namespace of what a model said in a part of its reply: a fact of the log, which nobody is shown."""

JsonType = Literal["dict", "list", "str", "int", "float", "bool", "bytes"]
ArtifactId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="UUIDv7, 32 lower-case hexadecimal digits")]
Digest = Annotated[
    str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the stored bytes, lower-case hexadecimal")
]
Tenant = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
Session = Annotated[str, Field(min_length=1, max_length=200)]
Run = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class ArtifactRef(Message):
    """Identifies an artifact of the caller's tenant. It grants no access: the tenant is checked when it is resolved.

    `json_type` and `items` describe the value, so that a placeholder can be made without reading the bytes. A `str` is
    stored as its UTF-8 text, `bytes` as they are, any other value as compact UTF-8 JSON. `size` counts the stored
    bytes.
    """

    artifact_id: ArtifactId
    mime_type: str
    size: int = Field(ge=0, description="bytes, as stored")
    sha256: Digest
    filename: str | None = None
    namespace: str | None = None
    json_type: JsonType | None = Field(default=None, description="null: an uploaded file")
    items: int | None = Field(default=None, ge=0, description="length of a list")
    artifact_type: str | None = Field(
        default=None, description="how to show it, as its tool declared for the stream: `echarts`"
    )
    created_at: int | None = Field(default=None, description="Unix ms")
    expires_at: int | None = Field(default=None, description="Unix ms; null: kept as long as its run")
    own_id: str | None = Field(default=None, exclude_if=is_absent, description="the id that its tool gave it, any text")
    skill_id: str | None = Field(default=None, exclude_if=is_absent)
    skill_name: str | None = Field(default=None, exclude_if=is_absent)
    path: list[str] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="in an argument: the part that is meant, as names of members and numbers of items",
    )


class PutArtifact(Message):
    """Store these bytes. The request may be repeated: the id and the digest identify the artifact."""

    tenant: Tenant
    artifact_id: ArtifactId = Field(description="made by the caller, once per artifact")
    size: int = Field(ge=0, description="bytes that follow")
    sha256: Digest
    session_id: Session | None = None
    run_id: Run | None = None
    user_id: str | None = Field(
        default=None, max_length=200, description="the user of the API key that uploads it; null: not one user's key"
    )
    namespace: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="its purpose, such as `input_image`"
    )
    filename: str | None = Field(
        default=None, max_length=1000, description="for people; folders and control characters are dropped"
    )
    mime_type: str | None = Field(
        default=None, max_length=200, description="checked against the bytes; null: detected from them"
    )
    json_type: JsonType | None = None
    items: int | None = Field(default=None, ge=0)
    artifact_type: str | None = Field(default=None, max_length=200)
    own_id: str | None = Field(default=None, min_length=1, max_length=200)
    skill_id: str | None = Field(default=None, max_length=200)
    skill_name: str | None = Field(default=None, max_length=200)
    ttl_s: int | None = Field(
        default=None, ge=1, le=315_360_000, description="seconds; null: as long as its run, or the store's default"
    )


class UploadOpened(Message):
    """Send the chunks in order to `subject`, at most `window` without a reply. With `ref` there is nothing to send."""

    upload_id: str
    subject: str
    chunk_bytes: int
    window: int
    ref: ArtifactRef | None = None


class ChunkTaken(Message):
    """The chunk was forwarded. `ref`: it was the last one, and the artifact is stored."""

    received: int = Field(description="bytes so far")
    ref: ArtifactRef | None = None


class HeadArtifact(Message):
    """Return the metadata of an artifact. A given session or run must be the artifact's own."""

    tenant: Tenant
    artifact_id: ArtifactId
    session_id: Session | None = None
    run_id: Run | None = None


class GetArtifact(HeadArtifact):
    """Return `length` bytes from `offset` on, fewer at the end, none beyond it."""

    offset: int = Field(default=0, ge=0)
    length: int = Field(default=CHUNK_BYTES, ge=0, le=CHUNK_BYTES)


class StoredArtifact(Message):
    """A reference with its session and run."""

    ref: ArtifactRef
    session_id: str | None = None
    run_id: str | None = None
    user_id: str | None = Field(default=None, description="the user of the API key that uploaded it")


class ListArtifacts(Message):
    """List the artifacts of this session or run, in the order in which they were stored.

    With `own_id`: only what this id names, one artifact for each tool that gave it, the newest first, on one page.
    """

    tenant: Tenant
    session_id: Session | None = None
    run_id: Run | None = None
    namespace: str | None = Field(default=None, max_length=64)
    own_id: str | None = Field(default=None, min_length=1, max_length=200, description="the id that a tool gave it")
    skill_id: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=100, ge=1, le=500, description="a page may have fewer even if another one follows")
    cursor: int = Field(default=0, ge=0, description="`next_cursor` of the previous page; 0: the first page")


class ArtifactPage(Message):
    """Artifacts in the order in which they were stored. `next_cursor` null: this is the last page."""

    artifacts: list[StoredArtifact]
    next_cursor: int | None = None


class DeleteArtifact(HeadArtifact):
    """Delete an artifact: its reference at once, its bytes soon after."""


class ArtifactDeleted(Message):
    """The reference was deleted."""

    artifact_id: ArtifactId


class AssembleStream(Message):
    """Assemble a finished artifact stream from the pieces on the run's stream subject.

    The request may be repeated: if `artifact_id` is stored, the reply is its reference. If pieces are missing, the
    reply is `artifact_not_found`.
    """

    tenant: Tenant
    run_id: Run
    call_id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    stream_id: str = Field(max_length=200)
    pieces: int = Field(ge=1, le=MAX_PIECES, description="number of pieces; their `seq` counts from 0 without gaps")
    since: int = Field(default=1, ge=1, description="sequence of the first piece in the stream RUNS, or an earlier one")
    artifact_id: ArtifactId = Field(description="made by the caller, once per stream")
    session_id: Session | None = None
    namespace: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="as in PutArtifact, like the next two"
    )
    filename: str | None = Field(default=None, max_length=1000)
    ttl_s: int | None = Field(default=None, ge=1, le=315_360_000)


class AssembledStream(Message):
    """The value of a stream, with bytes as base64, or its reference if the value is large."""

    json_type: Literal["list", "str", "bytes"] | None = Field(
        default=None, description="of `value`; null: there is a reference"
    )
    value: Any = None
    ref: ArtifactRef | None = None


class BytesWanted(Message):
    """A tool asks for bytes of an artifact that its arguments refer to. They come on `tool.<name>.given`."""

    artifact_id: ArtifactId
    offset: int = Field(ge=0)
    length: int = Field(ge=1, le=PART_BYTES)


class BytesGiven(Message):
    """In the header GIVEN_HEADER of a message on `tool.<name>.given`, to all instances: one has asked for these bytes.

    Fewer than it asked for are the last ones.
    """

    idempotency_key: str
    round: int = 0
    artifact_id: ArtifactId
    offset: int
    failure: Fault | None = Field(default=None, description="why there are none")


INPUT_IMAGE = "input_image"
"""The namespace of checked and cleaned images. Only the gateway stores artifacts there."""

ImageType = Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
_SIGNATURES: tuple[tuple[re.Pattern[bytes], ImageType], ...] = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)
Detail = Literal["low", "high", "auto"]
"""The resolution at which the model gets an image, if its provider offers a choice. It decides what the image costs."""


def image_type(data: bytes) -> ImageType | None:
    """Return the type of an image from its first twelve bytes; None if models do not accept it."""
    return next((kind for pattern, kind in _SIGNATURES if pattern.match(data)), None)


def image_in(text: str) -> bytes:
    """Return the bytes of an image that a text holds as base64; empty if it holds none."""
    try:
        if image_type(base64.b64decode(text[:16], validate=True)) is None:
            return b""
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


class ImageInput(HttpInput):
    """An image of a question: a stored artifact, or its bytes as a data URL (`data:image/png;base64,…`)."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": [name], "properties": {name: {"type": "string"}}} for name in ("artifact_id", "data")
            ]
        }
    )

    artifact_id: ArtifactId | None = None
    data: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="a data URL in base64; it is stored as an artifact of the run",
        json_schema_extra={"pattern": r"^[dD][aA][tT][aA]:"},
    )
    filename: str | None = Field(default=None, max_length=1000, description="for people, with `data`")
    detail: Detail | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "ImageInput":
        if (self.artifact_id is None) == (self.data is None):
            raise ValueError("give either artifact_id or data")
        return self


class ImageRef(Message):
    """An image in a run. Its bytes are read from the artifact store on behalf of the run's tenant."""

    artifact_id: ArtifactId
    mime_type: ImageType
    filename: str | None = None
    detail: Detail | None = None


VisionMode = Literal["strict", "lenient"]
"""What happens to a run with images if its models take none: it is refused (`strict`) or runs without them."""


class VisionContextPolicy(Message):
    """Whether images in results of tools are shown to the model in later calls.

    Off unless the agent's entry enables it.
    """

    enabled: bool = False
    max_images: int = Field(default=4, ge=0, le=100, description="of all tools of a run together")
    max_total_bytes: int = Field(default=8 << 20, ge=0, description="of all of them")
    allowed_sources: tuple[str, ...] = Field(
        default=(), description="names and tags of the tools whose images may be shown; `*`: all"
    )
    allow_mime_types: tuple[ImageType, ...] = ("image/png", "image/jpeg", "image/webp", "image/gif")


class ModelProfile(Message):
    """What a planner knows about a model that it uses.

    It is stored in the catalogue, so that the gateway can refuse images before a run exists.
    """

    model: Annotated[str, Field(min_length=1, max_length=200, description="its name; `*`: callers may name any model")]
    images: Literal["seen", "refused", "dropped"] = Field(
        description="`seen`: the model takes images; `refused`: it takes none, and a run with images ends; `dropped`: "
        "it takes none, and the run continues without them, unless the request or `vision` says otherwise"
    )
    agents: list[str] = Field(
        default_factory=list, description="agents whose runs it answers if the request names no model"
    )
    vision: dict[str, VisionMode] = Field(
        default_factory=dict, description="of agents that do not leave it to the deployment"
    )
    descriptions: dict[str, str] = Field(default_factory=dict, description="of agents that have one")
