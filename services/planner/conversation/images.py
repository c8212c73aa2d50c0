"""Images in a conversation, as references.

`effects.image_loader` replaces them by bytes in each model request. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from contracts.artifacts.images import ImageRef
from services.planner.run.state.history import ToolImage

Part = dict[str, Any]

IMAGE = "image"
"""Type of a part that refers to an image. No provider knows it, so such a part must not leave the planner."""
CHARACTERS_PER_IMAGE = 4000
"""Length of an image in estimates of a conversation: about a thousand tokens, for any size."""
LEFT_OUT = "[an image of an earlier result is left out]"

_LEAD = "Images among the results of {tool}:"


def image_part(ref: ImageRef) -> Part:
    """Return the part of an image of the question."""
    part = {"type": IMAGE, "artifact_id": ref.artifact_id, "name": ref.filename or ref.artifact_id}
    return part | ({"detail": ref.detail} if ref.detail else {})


def with_images(text: str, images: Sequence[ImageRef]) -> str | list[Part]:
    """Return the content of a message: plain text if there are no images."""
    return [{"type": "text", "text": text}, *map(image_part, images)] if images else text


def images_messages(images: Iterable[ToolImage]) -> list[dict[str, Any]]:
    """Render images of tools: one user message per tool."""
    parts: dict[str, list[Part]] = {}
    for image in images:
        lead = {"type": "text", "text": _LEAD.format(tool=image.tool)}
        name = f"{image.path} of {image.tool}"
        part: Part = {"type": IMAGE, "inline": image.inline, "name": name}
        if image.inline is None:  # A tool may name any artifact id, so only artifacts of this run are fetched.
            part = {"type": IMAGE, "artifact_id": image.artifact_id, "name": name, "of_run": True}
        parts.setdefault(image.tool, [lead]).append(part)
    return [{"role": "user", "content": content} for content in parts.values()]
