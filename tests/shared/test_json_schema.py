"""Schemas that others wrote: what one may be, and what checking a value by it may cost."""

import asyncio
import multiprocessing
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runwire.plans.schema_folding import pattern_size
from services.shared.json_schema.checks import InvalidSchema, certain_faults, check_schema, complaints
from services.shared.redaction.separation import collect, separate
from tests.support.schemas import chained

EXPRESSION = {
    "$ref": "#/$defs/e",
    "$defs": {
        "e": {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"}},
                    "required": ["left", "right"],
                },
                {
                    "type": "object",
                    "properties": {"left": {"$ref": "#/$defs/e"}, "sign": {"type": "string"}},
                    "required": ["left", "sign"],
                },
            ]
        }
    },
}


def nested(levels: int, leaf: Any = "x") -> Any:
    """A value of which two members of EXPRESSION look at each level."""
    value = leaf
    for _ in range(levels):
        value = {"left": value, "right": "y"}
    return value


def said(value: Any, schema: dict[str, Any]) -> str:
    """The complaints as one text, or why there are none."""
    try:
        return "; ".join(complaints(value, schema))
    except InvalidSchema as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("by", ["anyOf", "oneOf", "allOf", "patternProperties", "dependentSchemas", "prefixItems"])
def test_a_schema_that_doubles_at_each_level_is_refused(by: str) -> None:
    """2^39 subschemas in 3 KB."""
    with pytest.raises(InvalidSchema, match="expands to more than 50,000 subschemas"):
        check_schema(chained(40, by=by))
    assert "expands to more than" in said({"a": 5}, chained(40, by=by))


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("^[0-9a-f]{8}-[0-9a-f]{4}$", 15),
        ("(ab|c){90}", 360),
        (r"(?:\(a{3}\)){2}x", 15),
        ("((a{100}){100}){100}", 20_001),
        ("a{99999999999}", 20_001),
        ("[(){5}]{2}", 2),
    ],
)
def test_the_counts_of_a_regular_expression_are_written_out(pattern: str, places: int) -> None:
    """Those of a group count for all that is in it."""
    assert pattern_size(pattern, 20_001) == places


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"pattern": f"({'|'.join(f'ab{n}' for n in range(150))}){{90}}"}, "expand to more than 20,000 parts"),
        ({"description": "x" * 200_000}, "200,018 bytes, and at most 131,072"),
        ({"properties": {f"p{number}": {"pattern": "^a+$"} for number in range(101)}}, "101 regular expressions"),
        ({"pattern": "a" * 1_001}, "1,001 characters"),
        ({"$ref": "#"}, "refers to itself"),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
            },
            "itself",
        ),
        ({"$ref": "#/$defs/nowhere"}, "leads nowhere"),
        ({"$ref": "#nowhere"}, "leads nowhere"),
        ({"$ref": "other.json"}, "another document"),
        ({"$ref": 5}, "no text"),
        ({"$defs": {"a": {"$id": "a.json", "type": "string"}}, "$ref": "#/$defs/a"}, "`\\$id` of its own"),
        ({"$defs": {"a": {"$anchor": "z"}, "b": {"$anchor": "z", "type": "null"}}, "$ref": "#z"}, "two places"),
    ],
)
def test_what_is_beyond_the_bounds_is_refused_with_a_reason(schema: dict[str, Any], reason: str) -> None:
    """In few words; what it holds otherwise does not matter."""
    with pytest.raises(InvalidSchema, match=reason):
        check_schema(schema)


def test_the_work_of_one_check_is_bounded_where_the_value_makes_it() -> None:
    """Two members look at each level of the value, so each level doubles what is to be done."""
    assert said(nested(12), EXPRESSION) == ""
    assert said(nested(40), EXPRESSION) == "TooMuchWork: a check of the value would take too many steps"
    assert "too large to say in which way" in said(nested(12, 5), EXPRESSION)


def test_marks_are_read_and_applied_in_bounded_work() -> None:
    """What is not known for certain within the bound is hidden."""
    schema = chained(40, leaf={"type": "object", "properties": {"secret": {"artifact": True}}})
    schema["$defs"]["wide"] = {
        "anyOf": [{"required": [f"k{n}"], "properties": {f"k{n}": {"artifact": True}}} for n in range(2_000)]
    }
    schema["properties"]["rows"] = {"items": {"$ref": "#/$defs/wide"}}
    value = {"a": {"secret": "CANARY"}, "rows": [{"k7": "CANARY"} for _ in range(3_000)]}
    began = time.process_time()
    shown = separate(value, schema).observation
    assert collect(value, schema)["a.secret"] == "CANARY"
    assert "CANARY" not in str(shown)
    assert time.process_time() - began < 10


LEAVES = st.sampled_from(
    [{"type": "string"}, {"type": "object"}, {"required": ["x"]}, {"artifact": True}, True, {"pattern": "^(a+)+$"}]
)
KEYWORDS = (
    *("anyOf", "oneOf", "allOf", "not", "if", "properties", "patternProperties", "additionalProperties", "items"),
    *("contains", "prefixItems", "propertyNames", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"),
)


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    """Definitions that refer to each other, earlier or later, several times, under any keyword."""
    count = draw(st.integers(2, 40))
    definitions: dict[str, Any] = {"a0": draw(LEAVES)}
    for level in range(1, count):
        schema: dict[str, Any] = {}
        for keyword in draw(st.lists(st.sampled_from(KEYWORDS), min_size=1, max_size=3, unique=True)):
            highest = count - 1 if draw(st.integers(0, 19)) == 0 else level - 1
            parts = [
                {"$ref": f"#/$defs/a{draw(st.integers(max(0, level - 2), highest))}"}
                for _ in range(draw(st.integers(1, 3)))
            ]
            schema |= as_keyword(keyword, parts)
        definitions[f"a{level}"] = schema
    return {"type": "object", "properties": {"x": {"$ref": f"#/$defs/a{count - 1}"}}, "$defs": definitions}


def as_keyword(keyword: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The keyword with these subschemas, in its form."""
    if keyword in {"anyOf", "oneOf", "allOf", "prefixItems"}:
        return {keyword: parts}
    if keyword == "if":
        return dict(zip(("if", "then", "else"), parts, strict=False))
    if keyword in {"properties", "patternProperties", "dependentSchemas"}:
        return {keyword: dict(zip(("x", "xx", "y"), parts, strict=False))}
    return {keyword: parts[0]}


VALUES = st.recursive(
    st.sampled_from([5, "x", "a" * 40 + "!", None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "xx", "y"]), inner, max_size=3),
    max_leaves=30,
)


def checked(given_: Any) -> float:
    """CPU seconds of reading, checking and redacting."""
    schema, value = given_
    began = time.process_time()
    said({"x": value}, schema)
    separate({"x": value}, schema)
    return time.process_time() - began


def test_no_schema_holds_a_process_up() -> None:
    """Whatever refers to whatever. In a process of its own, since what is too slow here would never end."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:

        @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
        @given(shapes(), VALUES)
        def every(schema: dict[str, Any], value: Any) -> None:
            assert pool.apply_async(checked, ((schema, value),)).get(timeout=20) < 2

        every()


HIDDEN_NAMES: dict[str, dict[str, Any]] = {
    "not allowed": {"properties": {"z": {}}, "additionalProperties": False},
    "not evaluated": {"unevaluatedProperties": False},
    "too long": {"propertyNames": {"maxLength": 2}},
    "inside": {"additionalProperties": {"type": "string"}},
    "further inside": {"additionalProperties": {"required": ["x"]}, "patternProperties": {"^C": {"type": "string"}}},
}


@pytest.mark.parametrize("case", HIDDEN_NAMES)
def test_masked_sentences_say_no_names_of_a_value(case: str) -> None:
    """Only those that the schema declares: other names are part of a value that may be hidden."""
    value, schema = {"v": {"CANARY": {"y": 1}}}, {"properties": {"v": HIDDEN_NAMES[case]}}
    masked = "; ".join(complaints(value, schema, masked=True))
    assert masked.startswith("v")
    assert "CANARY" not in masked
    assert "CANARY" in "; ".join(complaints(value, schema))


@pytest.mark.parametrize("item", [lambda n: n, str, lambda n: [n], lambda n: {"n": n}])
def test_what_is_too_much_is_known_before_it_is_counted(item: Callable[[int], Any]) -> None:
    """An array is refused by its length and the size of `items`, not after a step per alternative of each item."""
    alternatives = [{"const": number} for number in range(900)]
    schema = {"properties": {"x": {"contains": {"const": 5}, "items": {"anyOf": alternatives}}}}
    value = {"x": [item(number) for number in range(10**6, 10**6 + 18_000)]}
    complaints({}, schema)  # It is compiled.
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        with pytest.raises(InvalidSchema, match="too many steps"):
            complaints(value, schema)
    finally:
        sys.setprofile(None)
    assert calls < 200_000


async def test_a_costly_check_says_the_same_in_another_process() -> None:
    """A thread passes it on; what the loop does is not held up by it."""
    schema = {"type": "array", "items": {"anyOf": [{"const": number} for number in range(40)]}}
    for value in ([1] * 9_000, [1] * 9_000 + [50]):
        assert await asyncio.to_thread(complaints, value, schema) == complaints(value, schema)


FLAT = {
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "s": {"enum": ["a", "b"]},
        "u": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "o": {
            "type": "object",
            "required": ["x"],
            "additionalProperties": False,
            "properties": {"x": {"pattern": "^a"}},
        },
        "l": {"type": "array", "maxItems": 1, "uniqueItems": True, "items": {"type": "integer"}},
        "t": {"type": "string"},
    },
    "required": ["n"],
    "if": {"properties": {"s": {"const": "a"}}, "required": ["s"]},
    "then": {"required": ["k"]},
}


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ({"n": "$T", "u": "$T", "o": {"x": "$T"}, "l": ["$T"], "s": "$T"}, []),
        ({"n": 0}, ["n"]),
        ({"n": "1", "s": "c", "u": "x"}, ["n", "s", "u"]),
        ({}, [""]),
        ({"n": 1, "o": {"y": "$T"}}, ["o", "o"]),
        ({"n": 1, "o": ["$T"], "t": {"a": "$T"}}, ["o", "t"]),
        ({"n": 1, "l": ["$T", "$T"]}, ["l"]),
        ({"n": 1, "l": ["$T", "x"]}, ["l", "l[1]"]),
        ({"n": 1, "s": "a"}, [""]),
        ({"n": "$T", "s": "a"}, []),
    ],
)
def test_only_faults_that_no_value_changes_are_certain(arguments: dict[str, Any], faults: list[str]) -> None:
    """`$T` stands for a value that is not known yet."""
    found = certain_faults(arguments, FLAT, lambda text: text == "$T")
    assert sorted(path for path, _ in found) == faults


def test_a_schema_that_cannot_be_used_has_no_certain_fault() -> None:
    """The call itself says what is wrong with it."""
    assert certain_faults({}, {"type": "nonsense"}, bool) == []
