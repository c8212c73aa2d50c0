"""The dialect of native tool calls (`action_transport: tools`), for models that are better at them than at JSON.

Tools and opcodes are offered as functions, and the model must call one. Its calls are converted to the equivalent JSON
action, so both transports share one parser, one answer stream and one set of events.

The schemas of functions have a form that strict providers take. These refuse a whole request for one schema that they
do not like. What a schema loses here is said in the function's description, and the arguments are still checked against
the original.

| rule | who refuses the other form |
| --- | --- |
| the root is an object with `properties`, without reference, combinator, `enum` and `const` | OpenAI, Anthropic |
| an array has `items`, which are one schema | OpenAI, Gemini |
| `const` is an `enum` of one value; an `enum` has a type, and values, each once | Gemini, llama.cpp |
| `required` lists names of `properties` | Gemini |
| a schema is an object, never true or false | Gemini, Ollama |
| a reference has a target | all |
"""

from collections.abc import Sequence
from typing import Any

from contracts.runs.decisions import FINAL_RESPONSE, PLAN, TASK
from contracts.runs.events import Observed, Step
from contracts.tools.messages import ToolSpec
from runwire.plans.schema_graph import schema_at, steps_of
from services.planner.conversation import catalogue, texts
from services.planner.conversation.encoding import OPAQUE, compact
from services.planner.conversation.messages import Dialect, Message, as_data, outcome, plan_of

_SOURCE = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "url": {"type": "string"}, "snippet": {"type": "string"}},
}
_FINAL = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "description": "the whole answer, addressed to the user and in the user's language",
        },
        "confidence": {"type": "number"},
        "sources": {"type": "array", "items": _SOURCE},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "requires_followup": {"type": "boolean"},
        "suggested_actions": {"type": "array", "items": {"type": "object"}},
        "language": {"type": "string"},
        "route": {"type": "string"},
    },
    "required": ["answer"],
}
_NEEDS_APPROVAL = "(A person is asked before it runs, and may refuse or change the call.)"
_CALL = {
    "type": "object",
    "properties": {"node": {"type": "string"}, "args": {"type": "object"}},
    "required": ["node", "args"],
}
_JOIN = {
    "type": "object",
    "properties": {"node": {"type": "string"}, "args": {"type": "object"}, "inject": {"type": "object"}},
    "required": ["node"],
}
_PLAN = {
    "type": "object",
    "properties": {"steps": {"type": "array", "items": _CALL}, "join": _JOIN},
    "required": ["steps"],
}


def functions(tools: Sequence[ToolSpec], *, tasks: bool = False, only_tools: bool = False) -> list[dict[str, Any]]:
    """Return the functions of a request, in the form of OpenAI's `tools`: first the tools, then the opcodes.

    `tasks`: whether the run may start background tasks. `only_tools`: the model answers in text, and calls no opcode
    but that of tasks.
    """
    tools = [*tools, *catalogue.task_specs(tools)] if tasks else tools
    offered = []
    for tool in tools:
        text = catalogue.clean(tool.description, catalogue.DESCRIPTION_LIMIT)
        schema, unsaid = function_schema(tool.input_schema)
        said = (text, unsaid, _NEEDS_APPROVAL if tool.requires_approval else "")
        offered.append((catalogue.shown_name(tool.name), " ".join(filter(None, said)), schema))
    if not only_tools:
        offered.append((FINAL_RESPONSE, "Answer the user: this ends the run.", _FINAL))
    if tools and not only_tools:
        offered.append((PLAN, "Call several tools at once; `join` names the tool that receives their results.", _PLAN))
    if tasks:
        offered.append((TASK, "Start one background task.", catalogue.TASK_SCHEMA))
    named = ({"name": name, "description": said, "parameters": schema} for name, said, schema in offered)
    return [{"type": "function", "function": function} for function in named]


def action_of(calls: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """Return the JSON action that equals these native calls, and the names of those that are left out.

    Several calls become a plan. A `final_response` among other calls is left out, and so is a plan among several.
    """
    named = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    if len(named) > 1 and named[0][0] != FINAL_RESPONSE:
        steps = [
            f'{{"node": {compact(name)}, "args": {_arguments(text)}}}'
            for name, text in named
            if name not in {FINAL_RESPONSE, PLAN}
        ]
        if len(steps) > 1:
            plan = f'{{"next_node": "{PLAN}", "args": {{"steps": [{", ".join(steps)}]}}}}'
            return plan, [name for name, _ in named if name in {FINAL_RESPONSE, PLAN}]
    name, text = named[0]
    return f"{head_of(name)}{_arguments(text)}}}", [name for name, _ in named[1:]]


def head_of(name: str) -> str:
    """Return the beginning of the JSON action that equals a call of this function, up to its arguments."""
    return f'{{"next_node": {compact(name)}, "args": '


def _arguments(text: str) -> str:
    return text.strip() or "{}"


class NativeTools(Dialect):
    """Renders decisions as native tool calls, and outcomes as their results."""

    complaint = texts.NATIVE_REPAIR

    def decision(self, step: Step) -> Message:
        """Render a decision as the native calls that say it."""
        if step.answer is not None:
            return {"role": "assistant", "content": step.answer}
        if step.join is None:
            calls = [(number, catalogue.shown_name(call.tool), call.args) for number, call in enumerate(step.calls, 1)]
            return _called(calls, step)
        return _called([(0, PLAN, plan_of(step))], step)

    def outcomes(self, step: Step, observed: Sequence[Observed], note: str | None = None) -> list[Message]:
        """Render outcomes, one message per native call. A plan with a join was one call, so it has one message."""
        order = {call.call_id: number for number, call in enumerate(step.calls, 1)}
        ordered = sorted(observed, key=lambda each: order.get(each.call_id, len(order) + 1))
        if step.join is not None:
            return [_result(step.step, 0, ordered, note)]
        last = ordered[-1]
        return [
            _result(step.step, order.get(each.call_id, 0), [each], note if each is last else None) for each in ordered
        ]


def _called(calls: Sequence[tuple[int, str, dict[str, Any]]], step: Step) -> Message:
    tool_calls = [
        {"id": _call_id(step.step, number), "type": "function", "function": {"name": name, "arguments": compact(args)}}
        for number, name, args in calls
    ]
    opaque = {} if step.opaque is None else {OPAQUE: step.opaque.model_dump(mode="json")}
    return {"role": "assistant", "tool_calls": tool_calls, **opaque}


def _result(step: int, number: int, observed: Sequence[Observed], note: str | None) -> Message:
    lines = [as_data(outcome(each)) for each in observed]
    return {
        "role": "tool",
        "tool_call_id": _call_id(step, number),
        "content": "\n".join(["<results>", *lines, "</results>", *([note] if note else [])]),
    }


def _call_id(step: int, number: int) -> str:
    """Return an id of nine letters and digits, the only form that one provider accepts."""
    return f"c{step % 0x10000:04x}{number % 0x10000:04x}"


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
    given = catalogue.compact_schema(schema)
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
    return strict, catalogue.clean(said, catalogue.DESCRIPTION_LIMIT)


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
