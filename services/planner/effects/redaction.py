"""Hides annotated values from the model a second time.

tool_runner redacts every result. An outcome from another sender, or from a version that knew fewer annotations, is
redacted here, before it enters the log: small values become inline artifacts, large ones are dropped.
"""

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ToolSpec
from contracts.wire.limits import MAX_INLINE_BYTES
from services.shared.redaction.annotations import AnnotationCache
from services.shared.redaction.json_values import plain
from services.shared.redaction.placeholders import wire_size
from services.shared.redaction.separation import separate


class Redactor:
    """The annotations of pinned specifications, each read once."""

    def __init__(self) -> None:
        self._annotations = AnnotationCache()

    def redacted(self, finished: CallFinished, digest: str, spec: ToolSpec) -> CallFinished:
        """Return the outcome without hidden values in its observation; the same object if it had none."""
        if finished.status != "succeeded" or not isinstance(finished.observation, dict | list | str):
            return finished
        annotations = self._annotations.of(digest, spec)
        if not annotations.root.hides:
            return finished
        parts = separate(finished.observation, annotations)
        if parts.observation == finished.observation:
            return finished
        light = {
            path: plain(value)
            for path, value in parts.artifacts.items()
            if value is not None and wire_size(value) <= MAX_INLINE_BYTES
        }
        return finished.model_copy(
            update={"observation": parts.observation, "artifacts": {**light, **finished.artifacts}}
        )
