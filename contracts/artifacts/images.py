"""Images of questions, and references to them. Their bytes stay in the artifact store."""

import base64
import re
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from ..wire.base import HttpInput, Message
from .references import ArtifactId

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
