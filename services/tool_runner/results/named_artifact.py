"""A named artifact: what a result's form says is its artifact, taken out of the observation, and its preview. Pure.

Rule 1: the artifact is hidden as a whole, as if the schema annotated it. The model reads a preview, in which everything
is hidden that the schema annotates inside.
Rule 2: what is known of the artifact is read from the redacted result. So an annotated member, such as an id in
`_metadata`, is not shown in another place.
Rule 3: the preview has at most some 4 KiB, and its work is bounded, however large the artifact is.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from contracts.artifacts.references import ArtifactRef, JsonType
from contracts.tools.messages import MAX_OWN_ID_CHARACTERS, ArtifactPreview, CallRequested, RespondedArtifact, ToolSpec
from services.shared.redaction.json_values import well_formed
from services.shared.redaction.placeholders import is_placeholder, json_type, placeholder, stored_size, wire_size
from services.shared.redaction.separation import Path, SeparatedResult, dotted
from services.shared.redaction.stored_values import stored_text

from . import forms

MAX_HEAD_CHARACTERS = 1_000
_MAX_HEAD_BYTES = 3 * 1024
"""As JSON in the message, where quotation marks of the head need two bytes."""
_MAX_COUNTS = 20
_MAX_COUNTS_BYTES = 1024
_MAX_LEVELS = 3
"""Levels below the artifact itself on which lists are counted."""
_MAX_INSPECTED = 1_000
"""Parts of the artifact that are inspected for lists."""


def preview_of(shown: Any, artifact: Any) -> ArtifactPreview:
    """Return the preview of an artifact. `shown`: the artifact with placeholders of what its schema hides."""
    head = well_formed(stored_text(shown)[:MAX_HEAD_CHARACTERS])
    while (size := wire_size(head)) > _MAX_HEAD_BYTES:
        head = head[: len(head) * _MAX_HEAD_BYTES // size]
    return ArtifactPreview(
        json_type=cast("JsonType", json_type(artifact)),
        size=stored_size(artifact),
        counts=_counts(shown),
        head=head,
    )


def _counts(shown: Any) -> dict[str, int]:
    """Return the number of members of the object itself, and of items of each list: the outer ones first."""
    found: dict[str, int] = {}
    room = _MAX_COUNTS_BYTES
    for path, value in islice(_breadth_first(shown), _MAX_INSPECTED):
        if not (isinstance(value, list) or (not path and isinstance(value, Mapping))):
            continue
        name = well_formed(dotted(path)) if path else ""
        room -= wire_size({name: len(value)})
        if room < 0 or len(found) >= _MAX_COUNTS:
            break
        found[name] = len(value)
    return found


def _breadth_first(shown: Any) -> Iterator[tuple[Path, Any]]:
    waiting: deque[tuple[Path, Any]] = deque([((), shown)])
    while waiting:
        path, value = waiting.popleft()
        yield path, value
        if len(path) >= _MAX_LEVELS or len(waiting) >= _MAX_INSPECTED:
            continue
        items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        waiting.extend(((*path, key), item) for key, item in islice(items, _MAX_INSPECTED))


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
