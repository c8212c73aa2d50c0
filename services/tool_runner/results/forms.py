"""The forms that a tool's result can have, as a table, and what a value and its schema say about its artifact. Pure.

A further form is a row of `FORMS`: the members by which it is known, and where it holds its artifact and the artifact's
key. A result that fits no other row is bare: it is its own artifact, without a key.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from services.shared.redaction.json_values import canonical_json, plain
from services.shared.redaction.placeholders import is_placeholder

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
    return text if isinstance(text, str) and text.strip() and not is_placeholder(text) else None


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
    return f"{tool}-{hashlib.sha256(canonical_json(plain(args))).hexdigest()}"


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
        schema = root
        for step in unquote(reference[1:]).split("/")[1:]:
            schema = _member(schema, step.replace("~1", "/").replace("~0", "~"))
    return found
