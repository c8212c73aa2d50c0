"""A reference to bytes that travel apart from messages: what stands in a message where the bytes would be too heavy."""

from typing import Literal

from pydantic import Field

from .base import Message

JsonType = Literal["dict", "list", "str", "int", "float", "bool", "bytes"]


class ArtifactRef(Message):
    """Names an artifact of the caller's tenant. Whoever resolves it checks the tenant: the fields below prove nothing.

    `json_type` and `items` say what the bytes stand for, so that a placeholder can be made without fetching them. A `str` is stored
    as its UTF-8 text, `bytes` as they are, everything else as compact UTF-8 JSON; `size` counts these stored bytes.
    """

    artifact_id: str = Field(pattern=r"^[0-9a-f]{32}$", description="UUIDv7, 32 lower-case hexadecimal digits")
    mime_type: str
    size: int = Field(ge=0, description="bytes, as stored")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the stored bytes, lower-case hexadecimal")
    filename: str | None = None
    namespace: str | None = None
    json_type: JsonType | None = Field(default=None, description="None: a file that somebody uploaded")
    items: int | None = Field(default=None, ge=0, description="length of a list")
    created_at: int | None = Field(default=None, description="Unix ms")
    expires_at: int | None = Field(default=None, description="Unix ms; None: kept as long as its run")
