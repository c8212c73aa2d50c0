"""Chooses the images of tool results that a run's policy lets the model see. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from contracts.artifacts.images import VisionContextPolicy
from contracts.runs.events import Observed
from services.planner.run.state.history import ToolImage
from services.shared.images.types import image_in, image_type
from services.shared.redaction.stored_values import as_reference


def allowed_images(
    policy: VisionContextPolicy | None, observed: Iterable[Observed], shown: Sequence[ToolImage] = ()
) -> list[ToolImage]:
    """Return the images of outcomes that the policy allows. `shown`: those of tools that the model has received."""
    chosen: list[ToolImage] = []
    if policy is None or not policy.enabled:
        return chosen
    count, size = len(shown), sum(image.size for image in shown)
    for outcome in observed:
        if outcome.tool not in policy.allowed_sources and "*" not in policy.allowed_sources:
            continue
        for path, value in outcome.artifacts.items():
            found = _image_in(outcome.tool, path, value, policy)
            if found is not None and count < policy.max_images and size + found.size <= policy.max_total_bytes:
                chosen.append(found)
                count, size = count + 1, size + found.size
    return chosen


def _image_in(tool: str, path: str, value: Any, policy: VisionContextPolicy) -> ToolImage | None:
    if isinstance(value, str):
        data = image_in(value)
        allowed = image_type(data) in policy.allow_mime_types
        return ToolImage(tool, path, len(data), inline=value) if allowed else None
    ref = as_reference(value)
    if ref is None or ref.mime_type not in policy.allow_mime_types:
        return None
    return ToolImage(tool, path, ref.size, artifact_id=ref.artifact_id)
