"""Images in a conversation, as references.

`effects.image_loader` replaces them by bytes in each model request. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from contracts.events import Observed
from contracts.images import ImageRef, VisionContextPolicy
from services.shared.image_types import image_in, image_type
from services.shared.redaction import as_reference

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


def images_messages(chosen: Iterable[tuple[str, Part]]) -> list[dict[str, Any]]:
    """Render images of tools, given as (tool, part): one user message per tool."""
    parts: dict[str, list[Part]] = {}
    for tool, part in chosen:
        parts.setdefault(tool, [{"type": "text", "text": _LEAD.format(tool=tool)}]).append(part)
    return [{"role": "user", "content": content} for content in parts.values()]


def images_of(
    policy: VisionContextPolicy | None, observed: Iterable[Observed], *, count: int = 0, size: int = 0
) -> list[tuple[str, Part, int]]:
    """Return the images of outcomes that the policy allows, as (tool, part, bytes).

    `count`, `size`: number and bytes of the images that the model has received before.
    """
    chosen: list[tuple[str, Part, int]] = []
    if policy is None or not policy.enabled:
        return chosen
    for outcome in observed:
        if outcome.tool not in policy.allowed_sources and "*" not in policy.allowed_sources:
            continue
        for path, value in outcome.artifacts.items():
            found = _image_in(outcome, path, value, policy)
            if found is not None and count < policy.max_images and size + found[1] <= policy.max_total_bytes:
                chosen.append((outcome.tool, *found))
                count, size = count + 1, size + found[1]
    return chosen


def _image_in(outcome: Observed, path: str, value: Any, policy: VisionContextPolicy) -> tuple[Part, int] | None:
    name = f"{path} of {outcome.tool}"
    if isinstance(value, str):
        data = image_in(value)
        return (
            ({"type": IMAGE, "inline": value, "name": name}, len(data))
            if image_type(data) in policy.allow_mime_types
            else None
        )
    ref = as_reference(value)
    if ref is None or ref.mime_type not in policy.allow_mime_types:
        return None
    # A tool may name any artifact id, so only artifacts of this run are fetched.
    return {"type": IMAGE, "artifact_id": ref.artifact_id, "name": name, "of_run": True}, ref.size
