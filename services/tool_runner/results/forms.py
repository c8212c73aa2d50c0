"""The forms that a tool's result can have, as a table, and the named artifact that is taken out of a result. Pure.

A further form is a row of `FORMS`: the members by which it is known, and where it holds its artifact and the artifact's
key. A result that fits no other row is bare: it is its own artifact, without a key.

Rule 1: the artifact is hidden as a whole, as if the schema annotated it. The model reads a preview, in which everything
is hidden that the schema annotates inside.
Rule 2: what is known of the artifact is read from the redacted result. So an annotated member, such as an id in
`_metadata`, is not shown in another place.
Rule 3: the preview has at most some 4 KiB, and its work is bounded, however large the artifact is.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from contracts.artifacts import ArtifactRef, JsonType
from contracts.tools.messages import MAX_OWN_ID_CHARACTERS, ArtifactPreview, CallRequested, RespondedArtifact, ToolSpec
from runwire.plans.schema_graph import schema_at, steps_of
from services.shared.redaction import json_values
from services.shared.redaction.separation import Path, SeparatedResult, dotted
from services.shared.redaction.stored_values import stored_text

METADATA = "_metadata"
_TYPE = "x-artifact-type"
_MAX_TYPE_CHARACTERS = 200
_MAX_REFERENCES = 32
"""References that are followed one after another."""


@dataclass(frozen=True, slots=True)
class ResultForm:
    """A form of results. `artifact`, `key`: the members that hold the artifact and its key; None: it has none."""

    name: str
    members: frozenset[str] = frozenset()
    """A mapping with all of these members has the form, whatever they hold."""
    artifact: str | None = None
    key: str | None = None

    def fits(self, value: Any) -> bool:
        """Whether a value has this form."""
        return not self.members or (isinstance(value, Mapping) and value.keys() >= self.members)


CANONICAL = ResultForm("tool_response", frozenset({"artifact_id", "artifact", METADATA}), "artifact", "artifact_id")
"""The canonical result: an artifact, the key that its tool gives it, and metadata."""
BARE = ResultForm("bare")
FORMS = (CANONICAL, BARE)
"""The first one that fits counts."""


def form_of(value: Any) -> ResultForm:
    """Return the form of a result."""
    return next(form for form in FORMS if form.fits(value))


def skill_id_of(value: Any) -> str | None:
    """Return the id of the skill of a result: the first text that is not blank, unchanged.

    It stands at the top, else in the artifact that the result's form names, else in `_metadata`.
    """
    places = (value, _member(value, form_of(value).artifact), _member(value, METADATA))
    return next((text for place in places if (text := text_of(place, "skill_id")) is not None), None)


def text_of(value: Any, name: str) -> str | None:
    """Return a member that is a text and not blank, or None. The placeholder of a hidden text is none."""
    text = _member(value, name)
    return text if isinstance(text, str) and text.strip() and not json_values.is_placeholder(text) else None


def artifact_type_of(value: Any, schema: Any) -> str | None:
    """Return the type of a result's artifact, for programs that show it, in lower case; None if nothing tells it.

    The value's `x-artifact-type` counts first, then the schema's, then the shape of the schema, then that of the value.
    A name may be any word: `table`, `form` and `chart` are those that a shape tells.
    """
    member = form_of(value).artifact
    artifact = _member(value, CANONICAL.artifact)
    declared = _resolved(schema, schema)
    of_artifact = _property(declared, CANONICAL.artifact, schema)
    for place in (value, artifact, _member(artifact, "card"), declared, of_artifact):
        name = text_of(place, _TYPE)
        if name is not None and len(name) <= _MAX_TYPE_CHARACTERS:
            return name.strip().lower()
    shaped, shown = (declared, value) if member is None else (_property(declared, member, schema), value[member])
    if _kind_of(shaped) == "array":
        shape = "table" if _kind_of(_resolved(_member(shaped, "items"), schema)) == "object" else None
    elif _kind_of(_property(shaped, "fields", schema)) == "array":
        shape = "form"
    else:
        properties = _member(shaped, "properties")
        is_chart = isinstance(properties, Mapping) and {"labels", "datasets"} <= properties.keys()
        shape = "chart" if is_chart else None
    is_table = isinstance(shown, list) and bool(shown) and all(isinstance(row, Mapping) for row in shown)
    return shape or ("table" if is_table else None)


def fingerprint(tool: str, args: Mapping[str, Any]) -> str:
    """Return what equal calls have in common: the tool's name, and the SHA-256 of their arguments' canonical JSON."""
    return f"{tool}-{hashlib.sha256(json_values.canonical_json(json_values.plain(args))).hexdigest()}"


def _member(value: Any, name: str | None) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _kind_of(schema: Any) -> str | None:
    """Return the type of a schema that says one: an object where it declares properties, an array where items."""
    kinds = _member(schema, "type")
    kinds = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else [kinds]
    if len(kinds) == 1 and isinstance(kinds[0], str):
        return kinds[0]
    if isinstance(_member(schema, "properties"), Mapping):
        return "object"
    return "array" if isinstance(_member(schema, "items"), Mapping) else None


def _property(schema: Any, name: str | None, root: Any) -> Any:
    return _resolved(_member(_member(schema, "properties"), name), root)


def _resolved(schema: Any, root: Any) -> Any:
    """Return a schema with its chain of local references merged into it. What stands beside a reference comes first."""
    found: dict[str, Any] = {}
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, Mapping):
            break
        found = {**schema, **found}
        if not isinstance(reference := schema.get("$ref"), str) or not reference.startswith("#"):
            break
        schema = schema_at(root, steps_of(reference))
    return found


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
    head = json_values.well_formed(stored_text(shown)[:MAX_HEAD_CHARACTERS])
    while (size := json_values.wire_size(head)) > _MAX_HEAD_BYTES:
        head = head[: len(head) * _MAX_HEAD_BYTES // size]
    kind, whole = cast("JsonType", json_values.json_type(artifact)), json_values.stored_size(artifact)
    return ArtifactPreview(json_type=kind, size=whole, counts=_counts(shown), head=head)


def _counts(shown: Any) -> dict[str, int]:
    """Return the number of members of the object itself, and of items of each list: the outer ones first."""
    found: dict[str, int] = {}
    room = _MAX_COUNTS_BYTES
    for path, value in islice(_breadth_first(shown), _MAX_INSPECTED):
        if not (isinstance(value, list) or (not path and isinstance(value, Mapping))):
            continue
        name = json_values.well_formed(dotted(path)) if path else ""
        room -= json_values.wire_size({name: len(value)})
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
    """The artifact at a path of a result. `path`: None: the result names none, and all that is known is its skill.

    `key`: what its tool calls it; None: it has no key that may be shown.
    """

    skill_id: str | None
    skill_name: str | None
    path: str | None = None
    key: str | None = None
    fingerprint: str = ""
    artifact_type: str | None = None
    preview: ArtifactPreview | None = None
    warnings: tuple[str, ...] = ()

    def cleaned(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> "NamedArtifact":
        """Return it for the artifacts of the result after their images were cleaned, or dropped."""
        if self.path is None or self.path not in after:
            return NamedArtifact(self.skill_id, self.skill_name)
        value = after[self.path]
        is_same = value is before[self.path]
        return self if is_same else replace(self, preview=self.preview and preview_of(value, value))

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
) -> tuple[SeparatedResult, NamedArtifact]:
    """Hide the artifact that the form of a result names, and return it too; a result without one is left alone.

    `parts`: the result as its schema separates it.
    """
    form, shown = form_of(value), parts.observation
    none = NamedArtifact(*skill_of(shown))
    if form.artifact is None or form.key is None or not isinstance(shown, Mapping):  # Not a mapping: all is hidden.
        return parts, none
    artifact, path = value[form.artifact], dotted((form.artifact,))
    if artifact is None or json_values.is_placeholder(artifact):
        return parts, none
    inside, is_hidden = shown[form.artifact], json_values.is_placeholder(shown[form.artifact])
    others = {name: each for name, each in parts.artifacts.items() if not name.startswith((f"{path}.", f"{path}["))}
    separated = replace(
        parts,
        observation={**shown, form.artifact: inside if is_hidden else json_values.placeholder(artifact)},
        artifacts={path: artifact, **others},
    )
    key = shown[form.key]
    is_usable = isinstance(key, str) and 0 < len(key) <= MAX_OWN_ID_CHARACTERS
    limit = f"a text of 1 to {MAX_OWN_ID_CHARACTERS} characters"
    unusable = f"artifact_without_id: `{form.key}` of {call.tool} is not {limit}, so its artifact has no id of its own"
    return separated, replace(
        none,
        path=path,
        key=key if is_usable and not json_values.is_placeholder(key) else None,
        fingerprint=fingerprint(call.tool, call.args),
        artifact_type=artifact_type_of(shown, spec.output_schema),
        preview=None if is_hidden else preview_of(inside, artifact),
        warnings=() if is_usable else (unusable,),
    )


def skill_of(shown: Any) -> tuple[str | None, str | None]:
    """Return the id and the name of the skill that a result names. `shown`: it without what its schema hides."""
    metadata = shown.get(METADATA) if isinstance(shown, Mapping) else None
    skill_id, name = skill_id_of(shown), text_of(metadata, "skill_name")
    return (
        skill_id if skill_id is not None and len(skill_id) <= _MAX_SKILL_CHARACTERS else None,
        name if name is not None and len(name) <= _MAX_SKILL_CHARACTERS else None,
    )
