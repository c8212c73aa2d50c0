"""The schemas of functions, in a form that strict providers take. Pure.

Providers refuse a whole request for one schema that they do not like. What a schema loses here is said in the
function's description, and the arguments are still checked against the original.

| rule | who refuses the other form |
| --- | --- |
| the root is an object with `properties`, without reference, combinator, `enum` and `const` | OpenAI, Anthropic |
| an array has `items`, which are one schema | OpenAI, Gemini |
| `const` is an `enum` of one value; an `enum` has a type, and values, each once | Gemini, llama.cpp |
| `required` lists names of `properties` | Gemini |
| a schema is an object, never true or false | Gemini, Ollama |
| a reference has a target | all |
"""

from typing import Any

from runwire.plans.json_schema.graph import schema_at, steps_of
from services.planner.conversation.catalogue import DESCRIPTION_LIMIT, clean, compact_schema
from services.planner.conversation.encoding import compact

Schema = dict[str, Any]
_LOST = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else", "dependentSchemas", "dependencies")
"""What no root may have."""
_OF_SCHEMAS = ("anyOf", "oneOf", "allOf")
_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_TYPES: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
MAX_NESTED = 40


def function_schema(schema: Schema) -> tuple[Schema, str]:
    """Return the parameters of a function, and what they do not say of the schema; empty: they say all."""
    given = compact_schema(schema)
    root = _resolved(given, given)
    lost = {name: root.pop(name) for name in _LOST if name in root}
    properties, required = dict(_object(root.get("properties"))), _names(root.get("required"))
    for name in _OF_SCHEMAS:
        branches = [_resolved(given, branch) for branch in _schemas(lost.get(name))]
        for branch in branches:
            properties = {**_object(branch.get("properties")), **properties}
        named = [set(_names(branch.get("required"))) for branch in branches]
        if named:  # What each form requires is required.
            together = set.union(*named) if name == "allOf" else set.intersection(*named)
            required += sorted(together - set(required))
    strict = _strict({"type": "object", **root, "properties": properties, "required": required} | {"type": "object"})
    if not strict["required"]:
        del strict["required"]
    _without_targetless(strict, strict)
    said = f"The arguments must also fit this JSON Schema: {compact(lost)}" if lost else ""
    return strict, clean(said, DESCRIPTION_LIMIT)


def flat_schema(parameters: Schema) -> Schema:
    """Return the names and simple types of the arguments alone: what is left when a provider refuses the rest."""
    kept: Schema = {}
    for name, inner in _object(parameters.get("properties")).items():
        kind = _object(inner).get("type")
        kept[name] = {"type": kind} if isinstance(kind, str) else {"type": "string"}
        if kind == "array":
            kept[name]["items"] = {"type": "string"}
        if description := _object(inner).get("description"):
            kept[name]["description"] = description
    required = [name for name in _names(parameters.get("required")) if name in kept]
    return {"type": "object", "properties": kept} | ({"required": required} if required else {})


def _strict(schema: Any, depth: int = 0) -> Schema:
    if not isinstance(schema, dict) or depth > MAX_NESTED:
        return {}
    strict = dict(schema)
    for name in _OF_SCHEMAS:
        if name in strict:
            strict[name] = [_strict(each, depth + 1) for each in _schemas(strict[name])]
    for name in _MAPS:
        if name in strict:
            inner = _object(strict[name]).items()
            strict[name] = {key: _strict(value, depth + 1) for key, value in inner if value is not False}
    for name in _SINGLE:
        if isinstance(strict.get(name), dict):
            strict[name] = _strict(strict[name], depth + 1)
    _make_array(strict, depth)
    _make_enum(strict)
    properties = _object(strict.get("properties"))
    if isinstance(strict.get("required"), list):
        strict["required"] = [name for name in _names(strict["required"]) if name in properties]
    else:
        strict.pop("required", None)
    return strict


def _make_array(schema: Schema, depth: int) -> None:
    """Give an array items of one schema. Those of a tuple may be of any of its schemas."""
    tuple_ = schema.pop("prefixItems", None) or (schema["items"] if isinstance(schema.get("items"), list) else None)
    kind = schema.get("type")
    if tuple_:
        schema.pop("additionalItems", None)
        kinds = [_strict(each, depth + 1) for each in tuple_]
        kinds = [each for number, each in enumerate(kinds) if each not in kinds[:number]]
        schema["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    elif not isinstance(schema.get("items"), dict) and (
        "items" in schema or kind == "array" or "array" in _names(kind)
    ):
        schema["items"] = {}


def _make_enum(schema: Schema) -> None:
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    values = schema.get("enum")
    if not isinstance(values, list) or not values:
        schema.pop("enum", None)
        return
    schema["enum"] = [value for number, value in enumerate(values) if value not in values[:number]]
    kinds = {_TYPES.get(type(value), "") for value in values}
    if "type" not in schema and len(kinds) == 1 and "" not in kinds:
        schema["type"] = kinds.pop()


def _without_targetless(schema: Any, root: Schema) -> None:
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        if isinstance(inner, dict) and isinstance(reference := inner.get("$ref"), str) and not _target(root, reference):
            del inner["$ref"]
        _without_targetless(inner, root)


def _resolved(root: Schema, schema: Schema) -> Schema:
    """Return a copy of a schema with the target of its own reference in it."""
    found = dict(schema)
    for _ in range(MAX_NESTED):
        reference = found.pop("$ref", None)
        if not isinstance(reference, str):
            break
        found = {**(_target(root, reference) or {}), **found}
    found.pop("$ref", None)  # It leads back to itself.
    return found


def _target(root: Schema, reference: str) -> Schema | None:
    """Return the schema that a reference inside a document names; None: there is none."""
    found = schema_at(root, steps_of(reference)) if reference.startswith("#") else None
    return found if isinstance(found, dict) else None


def _object(value: Any) -> Schema:
    return value if isinstance(value, dict) else {}


def _schemas(value: Any) -> list[Schema]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _names(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
