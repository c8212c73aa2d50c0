"""The strict JSON loader: what it takes, what it refuses, and that nothing makes it recurse."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.replies.strict_json import MAX_DEPTH, MAX_DIGITS, NotJson, loads


@given(st.text(st.sampled_from("{}[]\",:\\ \n\t0123456789.-+eEtrufalsn'`"), max_size=40))
def test_agrees_with_the_standard_library_on_any_text(text: str) -> None:
    """What one of them takes, the other takes with the same value; numbers as large as infinity are the exception."""
    mine, theirs = outcome(loads, text), outcome(json.loads, text)
    assert mine == theirs or "Infinity" in json.dumps(theirs)


def outcome(load: Callable[[str], Any], text: str) -> Any:
    """The value, or the type of error that a caller sees."""
    try:
        return load(text)
    except ValueError:
        return "refused"


@pytest.mark.parametrize(
    ("text", "position", "cause"),
    [
        ("", 0, "a value is expected"),
        ('{"a": NaN}', 6, "NaN is no JSON number"),
        ("[1, -Infinity]", 4, "-Infinity is no JSON number"),
        ("1e999", 0, "too large"),
        ("[01]", 2, "',' or ']' is expected"),
        ('{"a": 1,}', 7, "a comma before the end"),
        ('{"a": 1', 7, "the text ends too early: ',' or '}' is expected"),
        ("{a: 1}", 1, "a key in quotes is expected"),
        ('"one\ntwo"', 4, "a control character"),
        (r'"\x41"', 1, r"\x is no escape"),
        ('"open', 5, "a string is not closed"),
        ("{} {}", 3, "goes on after the value"),
        ("True", 0, "a value is expected"),
        ("9" * (MAX_DIGITS + 1), 0, "a number of more than"),
    ],
)
def test_names_position_and_cause(text: str, position: int, cause: str) -> None:
    """A complaint about a reply has to say where and why."""
    with pytest.raises(NotJson) as caught:
        loads(text)
    assert caught.value.position == position
    assert cause in caught.value.cause


@pytest.mark.parametrize("key", ["next_node", "args", "plan", "answer", "raw_answer", "text", "response", "content"])
def test_a_key_that_decides_may_occur_once(key: str) -> None:
    """Also deeper inside, and however the key is escaped; the same key in two objects is two keys."""
    escaped = f"\\u{ord(key[0]):04x}{key[1:]}"
    for text in (f'{{"{key}": 1, "{key}": 1}}', f'[{{"a": {{"{key}": 1, "b": 2, "{escaped}": 3}}}}]'):
        with pytest.raises(NotJson, match=f"`{key}` occurs twice"):
            loads(text)
    assert loads(f'[{{"{key}": 1}}, {{"{key}": {{"{key}": 2}}}}]') == [{key: 1}, {key: {key: 2}}]


def test_of_another_repeated_key_the_last_counts() -> None:
    """As in other parsers: the key decides nothing here."""
    assert loads('{"q": 1, "q": 2}') == {"q": 2}


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":', "[\n"])
def test_depth_is_bounded_without_recursion(opening: str) -> None:
    """A hundred thousand brackets are an ordinary error."""
    with pytest.raises(NotJson, match="inside each other") as caught:
        loads(opening * 100_000)
    assert caught.value.depth == MAX_DEPTH


def test_depth_is_counted_exactly() -> None:
    """The deepest allowed nesting is read, one more is refused."""
    assert loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(NotJson):
        loads("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_surrogates_are_joined_or_replaced() -> None:
    """What comes out can be encoded."""
    assert loads(r'"\ud83d\ude00 \ud83d x \ude00"') == "\N{GRINNING FACE} \ufffd x \ufffd"
    assert loads('{"\ud800": 1}') == {"\ufffd": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 'it\\'s', \"b\": \"it's\"}", {"a": "it's", "b": "it's"}),
        ("{'a': None, 'b': [True, False,],}", {"a": None, "b": [True, False]}),
        ('"one\ntwo\ttabs\x00"', "one\ntwo\ttabs\x00"),
        (r'"C:\dir \d+ \_"', r"C:\dir \d+ \_"),
        (r"'\x41\u0041\U00000041\a'", r"AAA\a"),
        (r'"D:\x64\apps\vault \U00000041"', r"D:\x64\apps\vault \U00000041"),
        (r'{"next\_node": "a\_b"}', {"next_node": r"a\_b"}),
        (r'"\users \x4"', r"\users \x4"),
        ("'one \\\ntwo'", "one two"),
    ],
)
def test_the_lenient_dialect_takes_what_models_write(text: str, value: object) -> None:
    """Python's quotes, words and escapes, trailing commas, raw control characters, escapes that are none."""
    assert loads(text, lenient=True) == value
    with pytest.raises(NotJson):
        loads(text)


def test_no_json_writer_puts_a_control_character_before_a_letter() -> None:
    """It is LaTeX, or a path, with too few backslashes; behind a right number of them nothing changes."""
    text = r'"\frac{1}{2} \beta \\frac C:\bin \b \f. \u000cx"'
    assert loads(text) == "\\frac{1}{2} \\beta \\frac C:\\bin \b \f. \fx"


@pytest.mark.parametrize(
    "text", ["{'a'}", "{1: 2}", "(1, 2)", "[,]", "[1,,2]", "{,}", "NaN", "nan", "inf", "{'a': 1 'b': 2}", "undefined"]
)
def test_the_lenient_dialect_has_limits(text: str) -> None:
    """Sets, tuples, keys that are no texts and numbers that are none stay errors."""
    with pytest.raises(NotJson):
        loads(text, lenient=True)


@pytest.mark.parametrize(
    "text",
    [
        '{ // why\n"a": 1 // so\n}',
        '/* why */ {"a": /* so */ 1,} // and so',
        '{"a":1}' + "// x\n" * 5000,
        '{/**/"a"//\n:1}',
    ],
)
def test_comments(text: str) -> None:
    """Blanks in the lenient dialect, and no JSON in the strict one; however many there are."""
    assert loads(text, lenient=True) == {"a": 1}
    with pytest.raises(NotJson):
        loads(text)


@pytest.mark.parametrize("text", ['{"a": 1 /* why }', '{"a": 1} /*', '{"a" // 1}', '{"a": 1} /', '{"a": # why\n1}'])
def test_what_is_no_comment(text: str) -> None:
    """One that is never closed, one that swallows the end, and Python's."""
    with pytest.raises(NotJson):
        loads(text, lenient=True)


def test_texts_hold_what_looks_like_a_comment() -> None:
    """As the texts that they are."""
    assert loads("{'a': 'x // y', \"b\": \"/* z */\"}", lenient=True) == {"a": "x // y", "b": "/* z */"}
