"""The standard form of a tool's result that is an artifact: what a value and its schema say about it. Pure.

Rule: a result has this form if its value has the members `artifact_id`, `artifact` and `_metadata`, whatever they hold.
Any other result is bare.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import unquote

from services.shared.redaction.json_values import canonical_json, plain
from services.shared.redaction.placeholders import is_placeholder

ID, ARTIFACT, METADATA = "artifact_id", "artifact", "_metadata"
_TYPE = "x-artifact-type"
_MAX_TYPE_CHARACTERS = 200
_MAX_REFERENCES = 32
"""References that are followed one after another."""

Format = Literal["tool_response", "bare"]


def format_of(value: Any) -> Format:
    """Return which form a result has."""
    return "tool_response" if isinstance(value, Mapping) and value.keys() >= {ID, ARTIFACT, METADATA} else "bare"


def skill_id_of(value: Any) -> str | None:
    """Return the id of the skill of a result: the first text that is not blank, unchanged.

    It stands at the top, else in the artifact of a result in the standard form, else in `_metadata`.
    """
    artifact = _member(value, ARTIFACT) if format_of(value) == "tool_response" else None
    places = (value, artifact, _member(value, METADATA))
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
    is_standard = format_of(value) == "tool_response"
    artifact = _member(value, ARTIFACT)
    declared = _resolved(schema, schema)
    of_artifact = _property(declared, ARTIFACT, schema)
    named = (_type_of(place) for place in (value, artifact, _member(artifact, "card"), declared, of_artifact))
    return next(
        (name for name in named if name is not None),
        _shape_of_schema(of_artifact if is_standard else declared, schema)
        or _shape_of_value(artifact if is_standard else value),
    )


def fingerprint(tool: str, args: Mapping[str, Any]) -> str:
    """Return what equal calls have in common: the tool's name, and the SHA-256 of their arguments' canonical JSON."""
    return f"{tool}-{hashlib.sha256(canonical_json(plain(args))).hexdigest()}"


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _type_of(place: Any) -> str | None:
    name = text_of(place, _TYPE)
    return name.strip().lower() if name is not None and len(name) <= _MAX_TYPE_CHARACTERS else None


def _shape_of_schema(schema: Any, root: Any) -> str | None:
    if _kind_of(schema) == "array":
        return "table" if _kind_of(_resolved(_member(schema, "items"), root)) == "object" else None
    if _kind_of(_property(schema, "fields", root)) == "array":
        return "form"
    properties = _member(schema, "properties")
    return "chart" if isinstance(properties, Mapping) and {"labels", "datasets"} <= properties.keys() else None


def _shape_of_value(value: Any) -> str | None:
    is_table = isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)
    return "table" if is_table else None


def _kind_of(schema: Any) -> str | None:
    """Return the type of a schema that says one: an object where it declares properties, an array where items."""
    kinds = _member(schema, "type")
    kinds = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else [kinds]
    if len(kinds) == 1 and isinstance(kinds[0], str):
        return kinds[0]
    if isinstance(_member(schema, "properties"), Mapping):
        return "object"
    return "array" if isinstance(_member(schema, "items"), Mapping) else None


def _property(schema: Any, name: str, root: Any) -> Any:
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
        schema = _at(root, reference)
    return found


def _at(root: Any, reference: str) -> Any:
    place = root
    for step in _steps(reference):
        place = _member(place, step)
    return place


def _steps(reference: str) -> Iterator[str]:
    return (step.replace("~1", "/").replace("~0", "~") for step in unquote(reference[1:]).split("/")[1:])
