"""The artifact of a result in the standard form, taken out of the observation, and what the model may know of it. Pure.

Rule 1: the artifact is hidden as a whole, as if the schema annotated it. The model reads a preview, in which everything
is hidden that the schema annotates inside.
Rule 2: what is known of the artifact is read from the redacted result. So an annotated member, such as an id in
`_metadata`, is not shown in another place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from contracts.artifacts.references import ArtifactRef
from contracts.tools.messages import CallRequested, ToolSpec
from contracts.tools.responses import MAX_OWN_ID_CHARACTERS, ArtifactPreview, RespondedArtifact
from services.shared.redaction.placeholders import is_placeholder, placeholder
from services.shared.redaction.separation import SeparatedResult, dotted
from services.tool_runner.results.canonical import (
    ARTIFACT,
    ID,
    METADATA,
    artifact_type_of,
    fingerprint,
    format_of,
    skill_id_of,
    text_of,
)
from services.tool_runner.results.preview import preview_of

PATH = dotted((ARTIFACT,))
_INSIDE = (f"{PATH}.", f"{PATH}[")
_MAX_SKILL_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class OwnArtifact:
    """An artifact that has, or should have, an id of its own. `artifact_id` None: it has none that may be shown."""

    artifact_id: str | None
    fingerprint: str
    artifact_type: str | None
    skill_id: str | None
    skill_name: str | None
    preview: ArtifactPreview | None
    warnings: tuple[str, ...] = ()

    def cleaned(self, value: Any) -> "OwnArtifact":
        """Return it for another value: that of an image without what else its bytes say."""
        return replace(self, preview=self.preview and preview_of(value, value))

    def responded(self, ref: ArtifactRef | None) -> RespondedArtifact | None:
        """Return what the outcome keeps of it. `ref`: where it is stored."""
        if self.artifact_id is None:
            return None
        return RespondedArtifact(
            artifact_id=self.artifact_id,
            ref=ref,
            fingerprint=self.fingerprint,
            artifact_type=self.artifact_type,
            skill_id=self.skill_id,
            skill_name=self.skill_name,
            preview=self.preview,
        )


def take_out(
    call: CallRequested, spec: ToolSpec, value: Any, parts: SeparatedResult
) -> tuple[SeparatedResult, OwnArtifact | None]:
    """Hide the artifact of a result in the standard form, and return it too; any other result is left alone.

    `parts`: the result as its schema separates it.
    """
    shown = parts.observation
    if format_of(value) == "bare" or not isinstance(shown, Mapping):  # Not a mapping: all of it is hidden.
        return parts, None
    artifact = value[ARTIFACT]
    if artifact is None or is_placeholder(artifact):
        return parts, None
    hidden = shown[ARTIFACT] if is_placeholder(shown[ARTIFACT]) else placeholder(artifact)
    others = {path: each for path, each in parts.artifacts.items() if not path.startswith(_INSIDE)}
    separated = replace(
        parts,
        observation={**shown, ARTIFACT: hidden},
        artifacts={PATH: artifact, **others},
    )
    return separated, _read(call, spec, shown, artifact)


def skill_of(shown: Any) -> tuple[str | None, str | None]:
    """Return the id and the name of the skill that a result names. `shown`: it without what its schema hides."""
    metadata = shown.get(METADATA) if isinstance(shown, Mapping) else None
    return _short(skill_id_of(shown)), _short(text_of(metadata, "skill_name"))


def _read(call: CallRequested, spec: ToolSpec, shown: Mapping[str, Any], artifact: Any) -> OwnArtifact:
    """Return what is known of an artifact. `shown`: the result without what its schema hides."""
    own_id = shown[ID]
    is_usable = isinstance(own_id, str) and 0 < len(own_id) <= MAX_OWN_ID_CHARACTERS
    limit = f"a text of 1 to {MAX_OWN_ID_CHARACTERS} characters"
    skill_id, skill_name = skill_of(shown)
    unusable = f"artifact_without_id: `artifact_id` of {call.tool} is not {limit}, so its artifact has no id of its own"
    return OwnArtifact(
        artifact_id=own_id if is_usable and not is_placeholder(own_id) else None,
        fingerprint=fingerprint(call.tool, call.args),
        artifact_type=artifact_type_of(shown, spec.output_schema),
        skill_id=skill_id,
        skill_name=skill_name,
        preview=None if is_placeholder(shown[ARTIFACT]) else preview_of(shown[ARTIFACT], artifact),
        warnings=() if is_usable else (unusable,),
    )


def _short(text: str | None) -> str | None:
    return text if text is not None and len(text) <= _MAX_SKILL_CHARACTERS else None
