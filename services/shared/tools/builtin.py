"""The built-in tools, and the names of tools as models and protocols take them.

With `read_artifact` a model reads more of an observation that was too large for it, and with `get_payload` a payload of
an earlier turn; the planner answers that by itself.

Rule 1: `read_artifact` returns only observations. Values annotated for people never enter a model's context.
Rule 2: they are called like any tool: as a step of the run, with one outcome in its log.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from contracts.sessions.tasks import TASK_TOOLS
from contracts.tools.messages import ToolSpec
from services.shared.redaction.stored_values import as_reference

_MAX_CHARACTERS, _HASH_DIGITS = 64, 8


def model_name(wanted: str) -> str:
    """Return a name of `A-Za-z0-9_-` in 64 characters at most; what is changed gets a suffix hashed from the original.

    The same name gives the same one in any order of starts, and no other gives it.
    """
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", wanted, flags=re.ASCII)
    if clean == wanted and len(clean) <= _MAX_CHARACTERS:
        return clean
    mark = hashlib.sha256(wanted.encode(errors="surrogatepass")).hexdigest()[:_HASH_DIGITS]
    room = _MAX_CHARACTERS - _HASH_DIGITS - 1
    if len(clean) <= room:
        return f"{clean}_{mark}"
    return f"{clean[: room - 16]}_{mark}_{clean[-15:]}"


READ_ARTIFACT = "read_artifact"
OBSERVATION = "$observation"
"""The name of a stored observation, if the complete result (`$`) holds more than the model may see."""

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
GET_PAYLOAD = "get_payload"
GET_PAYLOAD_SPEC = ToolSpec(
    name=GET_PAYLOAD,
    description="Read the whole of a payload of this conversation, such as a proposal, by its id.",
    input_schema={
        "type": "object",
        "properties": {"payload_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"}},
        "required": ["payload_id"],
        "additionalProperties": False,
    },
    idempotent=True,
    side_effects="read",
)
BUILT_IN = frozenset({READ_ARTIFACT, GET_PAYLOAD})
OF_PLANNER = frozenset({*TASK_TOOLS, GET_PAYLOAD})
"""Tools whose calls go to no tool runner."""


def readable_in(observation: Any, artifacts: Mapping[str, Any]) -> str | None:
    """Return the id of the artifact that holds the complete observation if it was shortened, else None.

    A tool may return a value that looks like a shortened observation. The artifacts that the tool runner stored tell
    the difference.
    """
    if not isinstance(observation, Mapping) or "head" not in observation:
        return None
    shown = as_reference(observation.get("artifact"))
    kept = as_reference(artifacts.get(OBSERVATION, artifacts.get("$")))
    return shown.artifact_id if shown and kept and shown.artifact_id == kept.artifact_id else None
