"""A named artifact: what a result's form says is its artifact, taken out of the observation. Pure.

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

from . import forms
from .preview import preview_of

_MAX_SKILL_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class NamedArtifact:
    """The artifact at a path of a result. `key`: what its tool calls it; None: it has no key that may be shown."""

    path: str
    key: str | None
    fingerprint: str
    artifact_type: str | None
    skill_id: str | None
    skill_name: str | None
    preview: ArtifactPreview | None
    warnings: tuple[str, ...] = ()

    def cleaned(self, value: Any) -> "NamedArtifact":
        """Return it for another value: that of an image without what else its bytes say."""
        return replace(self, preview=self.preview and preview_of(value, value))

    def responded(self, ref: ArtifactRef | None) -> RespondedArtifact | None:
        """Return what the outcome keeps of it. `ref`: where it is stored."""
        if self.key is None:
            return None
        return RespondedArtifact(
            artifact_id=self.key,
            ref=ref,
            fingerprint=self.fingerprint,
            artifact_type=self.artifact_type,
            skill_id=self.skill_id,
            skill_name=self.skill_name,
            preview=self.preview,
        )


def take_out(
    call: CallRequested, spec: ToolSpec, value: Any, parts: SeparatedResult
) -> tuple[SeparatedResult, NamedArtifact | None]:
    """Hide the artifact that the form of a result names, and return it too; a result without one is left alone.

    `parts`: the result as its schema separates it.
    """
    form, shown = forms.form_of(value), parts.observation
    if form.artifact is None or form.key is None or not isinstance(shown, Mapping):  # Not a mapping: all is hidden.
        return parts, None
    artifact, path = value[form.artifact], dotted((form.artifact,))
    if artifact is None or is_placeholder(artifact):
        return parts, None
    inside, is_hidden = shown[form.artifact], is_placeholder(shown[form.artifact])
    others = {name: each for name, each in parts.artifacts.items() if not name.startswith((f"{path}.", f"{path}["))}
    separated = replace(
        parts,
        observation={**shown, form.artifact: inside if is_hidden else placeholder(artifact)},
        artifacts={path: artifact, **others},
    )
    key = shown[form.key]
    is_usable = isinstance(key, str) and 0 < len(key) <= MAX_OWN_ID_CHARACTERS
    limit = f"a text of 1 to {MAX_OWN_ID_CHARACTERS} characters"
    unusable = f"artifact_without_id: `{form.key}` of {call.tool} is not {limit}, so its artifact has no id of its own"
    skill_id, skill_name = skill_of(shown)
    return separated, NamedArtifact(
        path=path,
        key=key if is_usable and not is_placeholder(key) else None,
        fingerprint=forms.fingerprint(call.tool, call.args),
        artifact_type=forms.artifact_type_of(shown, spec.output_schema),
        skill_id=skill_id,
        skill_name=skill_name,
        preview=None if is_hidden else preview_of(inside, artifact),
        warnings=() if is_usable else (unusable,),
    )


def skill_of(shown: Any) -> tuple[str | None, str | None]:
    """Return the id and the name of the skill that a result names. `shown`: it without what its schema hides."""
    metadata = shown.get(forms.METADATA) if isinstance(shown, Mapping) else None
    skill_id, name = forms.skill_id_of(shown), forms.text_of(metadata, "skill_name")
    return (
        skill_id if skill_id is not None and len(skill_id) <= _MAX_SKILL_CHARACTERS else None,
        name if name is not None and len(name) <= _MAX_SKILL_CHARACTERS else None,
    )
