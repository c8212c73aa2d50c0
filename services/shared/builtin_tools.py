"""The tool that Runwire has itself: `read_artifact`, by which a model reads on in an observation that was too large for it.

Rule 1: it gives observations alone. What a tool marks for people never enters a model's context, whoever asks for it.
Rule 2: it is called as any tool is: a step of the run, settled once, in its log.
"""

from collections.abc import Mapping
from typing import Any

from contracts.tools import ToolSpec
from services.shared.redaction import as_reference

READ_ARTIFACT = "read_artifact"
OBSERVATION = "$observation"
"""The name under which an observation is kept where the result as a whole (`$`) holds more than the model may see."""

_SCHEMA = {
    "type": "object",
    "properties": {
        "artifact_id": {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "of an observation that was cut"},
        "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "in bytes"},
        "length": {"type": "integer", "minimum": 1, "description": "in bytes; the runtime may give fewer"},
    },
    "required": ["artifact_id"],
    "additionalProperties": False,
}
_SPEC = ToolSpec(
    name=READ_ARTIFACT,
    description="Read a part of an observation that was too large to be shown as a whole.",
    input_schema=_SCHEMA,
    idempotent=True,
    side_effects="read",
)
READ_ARTIFACT_SPEC = ToolSpec.model_validate_json(_SPEC.model_dump_json())
READ_ARTIFACT_DIGEST = READ_ARTIFACT_SPEC.digest()


def readable_in(observation: Any, artifacts: Mapping[str, Any]) -> str | None:
    """Return the artifact that holds the whole of an observation that was cut; None of any other.

    A tool may answer what looks like a cut observation. What the tool runner has kept beside it tells.
    """
    if not isinstance(observation, Mapping) or "head" not in observation:
        return None
    shown = as_reference(observation.get("artifact"))
    kept = as_reference(artifacts.get(OBSERVATION, artifacts.get("$")))
    return shown.artifact_id if shown and kept and shown.artifact_id == kept.artifact_id else None
