"""What holds for every schema and every result: nothing marked is shown, nothing is lost, nothing raises.

Schemas and values are made together: a value fits its schema, and below every mark stands a canary. Around them stand
schemas that fit or do not fit, so that it is often unclear which one applies.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.shared.redaction.separation import collect, extract_sources, restore, separate

CANARY = "CANARY"
PLAIN = st.sampled_from([None, True, 0, 1.5, "seen", "", [], {}, [1, "x"], {"k": "v"}, "<artifact", b"\xff"])
KEYS = st.sampled_from(["a", "b", "kind", "a.b", "x[0]", "", "artifact", "$ref"])


@dataclass
class Made:
    """A schema, a value that fits it, and definitions that the schema refers to."""

    schema: Any
    value: Any
    definitions: dict[str, Any] = field(default_factory=dict)


def canaries(draw: st.DrawFn) -> Any:
    """A value with a canary in it, bare or inside something."""
    text = f"{CANARY}-{draw(st.integers(0, 9))}"
    return draw(st.sampled_from([text, [text], {"k": text}, [[{"k": [text]}]], {CANARY: 1}]))


@st.composite
def marked(draw: st.DrawFn) -> Made:
    annotations: list[dict[str, Any]] = [
        {"artifact": True},
        {"artifact": "yes"},
        {"stream": True},
        {"artifact": True, "stream": True, "stream_id": "s"},
    ]
    return Made(dict(draw(st.sampled_from(annotations))), canaries(draw))


@st.composite
def visible(draw: st.DrawFn) -> Made:
    return Made(draw(st.sampled_from([{}, True, {"description": "any"}, {"produces_sources": True}])), draw(PLAIN))


@st.composite
def decoys(draw: st.DrawFn) -> Any:
    """A schema without annotations that may or may not fit what it is offered."""
    part = draw(
        st.sampled_from([{}, True, {"type": "string"}, {"type": "object"}, {"required": ["zzz"]}, {"const": 1}])
    )
    return draw(
        st.sampled_from([part, {"properties": {"a": part, "b": part}}, {"additionalProperties": part}, {"items": part}])
    )


@st.composite
def inside_object(draw: st.DrawFn, parts: st.SearchStrategy[Made]) -> Made:
    """Several parts under names, as properties, patterns or map values."""
    made = draw(st.dictionaries(KEYS, parts, min_size=1, max_size=3))
    value = {key: part.value for key, part in made.items()}
    schemas = {key: part.schema for key, part in made.items()}
    definitions = merged(*made.values())
    form = draw(st.integers(0, 3))
    if form == 0:
        return Made({"type": "object", "properties": schemas, "required": list(schemas)}, value, definitions)
    if form == 1:
        return Made({"allOf": [{"properties": {key: schema}} for key, schema in schemas.items()]}, value, definitions)
    if form == 2:
        return Made({"patternProperties": {"": {"anyOf": list(schemas.values())}}}, value, definitions)
    return Made({"additionalProperties": {"oneOf": list(schemas.values())}}, value, definitions)


@st.composite
def inside_list(draw: st.DrawFn, parts: st.SearchStrategy[Made]) -> Made:
    """Several parts in a list, each with a place of its own or all alike."""
    made = draw(st.lists(parts, min_size=1, max_size=3))
    value = [part.value for part in made]
    schemas = [part.schema for part in made]
    schema = {"prefixItems": schemas} if draw(st.booleans()) else {"type": "array", "items": {"anyOf": schemas}}
    return Made(schema, value, merged(*made))


@st.composite
def inside_choice(draw: st.DrawFn, parts: st.SearchStrategy[Made]) -> Made:
    """A part among members of a union that may or may not fit it."""
    made = draw(parts)
    others = draw(st.lists(decoys(), max_size=2))
    place = draw(st.integers(0, len(others)))
    keyword = draw(st.sampled_from(["anyOf", "oneOf"]))
    return Made({keyword: [*others[:place], made.schema, *others[place:]]}, made.value, made.definitions)


@st.composite
def behind_reference(draw: st.DrawFn, parts: st.SearchStrategy[Made]) -> Made:
    """A part whose schema stands among the definitions."""
    made = draw(parts)
    name = f"D{len(made.definitions)}~/{draw(st.integers(0, 99))}"
    pointer = name.replace("~", "~0").replace("/", "~1")
    return Made({"$ref": f"#/$defs/{pointer}"}, made.value, made.definitions | {name: made.schema})


def merged(*made: Made) -> dict[str, Any]:
    """Definitions of all; of two with one name both stay, as a choice."""
    found: dict[str, Any] = {}
    for part in made:
        for name, schema in part.definitions.items():
            found[name] = {"anyOf": [found[name], schema]} if name in found else schema
    return found


def around(parts: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    """Any way to put parts into something larger."""
    return inside_object(parts) | inside_list(parts) | inside_choice(parts) | behind_reference(parts)


RESULTS = st.recursive(marked() | visible(), around, max_leaves=8)


def whole(made: Made) -> dict[str, Any]:
    """The schema as a document with its definitions."""
    return {"allOf": [made.schema], "$defs": made.definitions}


def text_of(value: Any) -> str:
    """Everything in a value, keys too."""
    return json.dumps(value, default=str)


@given(RESULTS)
def test_what_is_under_a_mark_is_never_shown_and_always_kept(made: Made) -> None:
    """Each canary leaves the observation and arrives among the artifacts, once."""
    parts = separate(made.value, whole(made))
    assert CANARY not in text_of(parts.observation)
    assert text_of(made.value).count(CANARY) == text_of(list(parts.artifacts.values())).count(CANARY)


@given(RESULTS)
def test_what_was_taken_apart_can_be_put_together(made: Made) -> None:
    """Redaction and collection cover the same places; redacting again changes nothing."""
    parts = separate(made.value, whole(made))
    assert restore(parts.observation, parts.artifacts) == made.value
    assert separate(parts.observation, whole(made)).observation == parts.observation


KEYWORDS = [
    *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "items", "prefixItems"),
    *("contains", "allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas", "$ref", "$defs"),
    *("type", "const", "enum", "required", "nullable", "format"),
    *("artifact", "stream", "stream_id", "source_field", "produces_sources"),
]
REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/properties/a", "#/allOf/0", "#a", "x", "#/%", "string", "title"])
JSON = st.recursive(
    PLAIN | REFERENCES,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS | st.just("title"), part, max_size=3),
)
SCHEMAS = st.recursive(
    JSON | st.booleans(),
    lambda part: st.dictionaries(
        st.sampled_from(KEYWORDS),
        part | st.lists(part, max_size=2) | st.dictionaries(KEYS, part, max_size=2),
        max_size=4,
    ),
)


@given(SCHEMAS, JSON)
def test_no_schema_and_no_value_make_it_raise_or_lose_anything(schema: Any, value: Any) -> None:
    """Nonsense from a tool is not our crash."""
    shown = separate(value, schema).observation
    found = collect(value, schema)
    assert restore(shown, found) == value
    assert separate(shown, schema).observation == shown
    assert all(source.title for source in extract_sources(value, schema))
