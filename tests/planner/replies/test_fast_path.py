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


LONG_TEXT, DEEP = f'"{LONG}"', MAX_DEPTH + 1
READ = [
    *(nested(MAX_DEPTH), nested(MAX_DEPTH, "", f',"b":{LONG_TEXT}'), nested(MAX_DEPTH - 1, "1", f',"b":{LONG_TEXT}')),
    *(f'{{"a": [{LONG_TEXT}]}}', f'{{"a":{nested(60)},"b":{nested(60)}}}'),
    *('{"a": 1e99}', f'{{"a": {"9" * 999}}}', '{"a": "\\ud83d\\ude00"}'),
]
NOT_READ = [
    *(nested(DEEP), nested(5000), nested(DEEP, "", f',"b":{LONG_TEXT}'), nested(DEEP, "1", f',"b":{LONG_TEXT}')),
    *(f'{{"a": {LONG_TEXT}}}], [{{"b": 1}}', f'{{"a": {LONG_TEXT}}}, {{"b": 1}}', f'{{"a": {LONG_TEXT}, "b": 1e999}}'),
    *('{"a": 1e999}', '{"a": [[1], -1e999]}', '{"a": NaN}'),
    *(f'{{"a": {"9" * digits}}}' for digits in (1001, 9999, 20_000)),
    *('{"args": 1, "args": 1}', '{"x": 1, "x": 2}', '{"a": "\\ud83d"}', '{"a": "\ud83d"}', '{"a": "line\nbreak"}'),
    *("{'a': 1}", '{"a": 1,}', '{"a": 1} {}', '{"a": 1', "{", ""),
]


@pytest.mark.parametrize(("texts", "is_read"), [(READ, True), (NOT_READ, False)], ids=["read", "not read"])
def test_what_it_takes(texts: list[str], *, is_read: bool) -> None:
    """Strict JSON within the limits, with no text after it."""
    assert [text[:99] for text in texts if (well_formed_object(text, 0) is not None) is not is_read] == []


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
