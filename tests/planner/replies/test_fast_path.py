"""The fast path gives no result, or exactly the result of the full parse."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.replies.actions import normalize, scan
from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.strict_json import MAX_DEPTH, Reader, well_formed_object
from tests.planner.replies.test_actions_properties import ACTIONS, JSON, damaged, dumped
from tests.planner.replies.test_answer_stream_properties import objects

TOOLS = frozenset({"save", "a", "Final_Response"})


@given(
    st.one_of(
        damaged(),
        objects(),
        ACTIONS.map(dumped),
        st.dictionaries(st.text(max_size=9), JSON, max_size=4).map(json.dumps),
    )
)
def test_an_object_is_the_one_that_the_reader_reads(text: str) -> None:
    """In strict JSON and in the lenient dialect, which takes all of it."""
    start = max(0, text.find("{"))
    found = well_formed_object(text, start)
    if found is not None:
        assert (
            json.dumps(found)
            == json.dumps(Reader(text).read(start))
            == json.dumps(Reader(text, lenient=True).read(start))
        )


LONG = "x" * 20_000


def nested(depth: int, inner: str = "", beside: str = "") -> str:
    return '{"a":' + "[" * (depth - 1) + inner + "]" * (depth - 1) + beside + "}"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (nested(MAX_DEPTH), True),
        (nested(MAX_DEPTH + 1), False),
        (nested(5000), False),
        (nested(MAX_DEPTH, "", f',"b":"{LONG}"'), True),
        (nested(MAX_DEPTH - 1, "1", f',"b":"{LONG}"'), True),
        (nested(MAX_DEPTH + 1, "", f',"b":"{LONG}"'), False),
        (nested(MAX_DEPTH + 1, "1", f',"b":"{LONG}"'), False),
        ('{"a": "' + LONG + '"}], [{"b": 1}', False),
        ('{"a": "' + LONG + '"}, {"b": 1}', False),
        ('{"a": ["' + LONG + '"]}', True),
        ('{"a": "' + LONG + '", "b": 1e999}', False),
        ('{"a":' + nested(60) + ',"b":' + nested(60) + "}", True),
        ('{"a": 1e999}', False),
        ('{"a": [[1], -1e999]}', False),
        ('{"a": 1e99}', True),
        ('{"a": ' + "9" * 1001 + "}", False),
        ('{"a": ' + "9" * 9999 + "}", False),
        ('{"a": ' + "9" * 20_000 + "}", False),
        ('{"a": ' + "9" * 999 + "}", True),
        ('{"a": NaN}', False),
        ('{"args": 1, "args": 1}', False),
        ('{"x": 1, "x": 2}', False),
        ('{"a": "\\ud83d\\ude00"}', True),
        ('{"a": "\\ud83d"}', False),
        ('{"a": "\ud83d"}', False),
        ('{"a": "line\nbreak"}', False),
        ("{'a': 1}", False),
        ('{"a": 1,}', False),
        ('{"a": 1} {}', False),
        ('{"a": 1', False),
        ("{", False),
        ("", False),
    ],
)
def test_what_it_takes(text: str, *, read: bool) -> None:
    """Strict JSON within the limits, with no text after it."""
    assert (well_formed_object(text, 0) is not None) is read


@given(
    st.one_of(objects(), ACTIONS.map(dumped), damaged()),
    st.sampled_from(["auto", "unified", "legacy"]),
    st.sampled_from([None, "because"]),
)
def test_the_action_is_the_one_of_the_long_way(reply: str, action_format: Any, reasoning: str | None) -> None:
    """With its reasoning, warnings, alternates and complaint."""
    quickly = normalize_action(reply, reasoning, tools=TOOLS, action_format=action_format)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalize, "well_formed_object", lambda *_: None)
        patch.setattr(scan, "well_formed_object", lambda *_: None)
        slowly = normalize_action(reply, reasoning, tools=TOOLS, action_format=action_format)
    assert quickly == slowly
