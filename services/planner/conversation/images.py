"""Images in a conversation: as references, which `pictures` replaces by bytes for each call of a model. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from contracts.events import Observed
from contracts.images import ImageRef, VisionContextPolicy
from services.shared.image_types import image_in, image_type
from services.shared.redaction import as_reference

Part = dict[str, Any]

IMAGE = "image"
"""The type of a part that stands for an image. No provider knows it: none may leave the planner."""
CHARACTERS = 4000
"""What an image counts for when a conversation's length is estimated: about a thousand tokens, whatever its bytes."""
LEFT_OUT = "[an image of an earlier result is left out]"

_LEAD = "Images among the results of {tool}:"


def image_part(ref: ImageRef) -> Part:
    """An image that came with the question."""
    part = {"type": IMAGE, "artifact_id": ref.artifact_id, "name": ref.filename or ref.artifact_id}
    return part | ({"detail": ref.detail} if ref.detail else {})


def with_images(text: str, images: Sequence[ImageRef]) -> str | list[Part]:
    """The content of a message; plain text where there are no images."""
    return [{"type": "text", "text": text}, *map(image_part, images)] if images else text


def images_messages(chosen: Iterable[tuple[str, Part]]) -> list[dict[str, Any]]:
    """Show the images of tools, as (tool, part): a message of the user's side per tool."""
    parts: dict[str, list[Part]] = {}
    for tool, part in chosen:
        parts.setdefault(tool, [{"type": "text", "text": _LEAD.format(tool=tool)}]).append(part)
    return [{"role": "user", "content": content} for content in parts.values()]


def images_of(
    policy: VisionContextPolicy | None, observed: Iterable[Observed], *, count: int = 0, size: int = 0
) -> list[tuple[str, Part, int]]:
    """Choose what the policy lets a model see among outcomes, as (tool, part, bytes). `count`, `size`: what it has been shown before."""
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
        return ({"type": IMAGE, "inline": value, "name": name}, len(data)) if image_type(data) in policy.allow_mime_types else None
    ref = as_reference(value)
    if ref is None or ref.mime_type not in policy.allow_mime_types:
        return None
    # A tool may have named whatever it likes: only an artifact of this very run is fetched.
    return {"type": IMAGE, "artifact_id": ref.artifact_id, "name": name, "of_run": True}, ref.size
