"""What holds for every reply: no exception, nothing invented, nothing lost, and work in proportion to the text."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.decisions import RESERVED, PlannerAction
from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.actions.scan import Scan
from services.planner.replies.answer_stream import AnswerStream
from services.planner.replies.strict_json import ANSWER_KEYS
from tests.support.five_fields import in_five_fields

NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True).filter(
    lambda name: name.lower() not in RESERVED | {"null", "none"}
)
TEXTS = st.text(max_size=30).filter(lambda text: re.search(r"[\b\f][A-Za-z]", text) is None)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
ARGS = st.dictionaries(TEXTS, JSON, max_size=4)

STEPS = st.fixed_dictionaries({"node": NAMES, "args": ARGS})
JOINS = st.fixed_dictionaries(
    {"node": NAMES}, optional={"args": ARGS.filter(bool), "inject": st.dictionaries(TEXTS, TEXTS, max_size=2)}
)
FINALS = st.fixed_dictionaries(
    {"answer": TEXTS}, optional={"confidence": st.floats(0, 1), "route": TEXTS, "warnings": st.lists(TEXTS, max_size=2)}
)
JOBS = st.fixed_dictionaries(
    {"mode": st.just("job"), "tool": NAMES}, optional={"tool_args": ARGS, "group": TEXTS, "retain_turn": st.booleans()}
)
SUBAGENTS = st.fixed_dictionaries(
    {"mode": st.just("subagent"), "query": TEXTS}, optional={"merge_strategy": st.just("HUMAN_GATED"), "name": TEXTS}
)
ACTIONS = st.one_of(
    st.builds(PlannerAction, next_node=NAMES, args=ARGS),
    st.builds(PlannerAction, next_node=st.just("final_response"), args=FINALS | st.just({})),
    st.builds(
        PlannerAction,
        next_node=st.just("plan"),
        args=st.fixed_dictionaries({"steps": st.lists(STEPS, max_size=3)}, optional={"join": JOINS}),
    ),
    st.builds(PlannerAction, next_node=st.just("task"), args=JOBS | SUBAGENTS),
)


def dumped(action: PlannerAction, **more: Any) -> str:
    """An action as the model is asked to write it."""
    return json.dumps(action.model_dump() | more, ensure_ascii=False)


WRAPPINGS: dict[str, Callable[[PlannerAction], str]] = {
    "plain": dumped,
    "ascii": lambda action: json.dumps(action.model_dump()),
    "fence": lambda action: f"```json\n{dumped(action)}\n```",
    "prose": lambda action: f"\ufeffFirst I think about it.\n{dumped(action)}\nThat is all.",
    "thoughts": lambda action: f"<think>Is it {{}} or a {{x: 1}}? {{'next_node': 'no'}}</think>{dumped(action)}",
    "decoys": lambda action: f'[1] {{"example": "{{"}} {{curly}} {dumped(action)} {{"x": [',
    "indented": lambda action: json.dumps(action.model_dump(), indent=2),
    "thought": lambda action: dumped(action, thought="because"),
    "args first": lambda action: json.dumps({"args": action.args, "next_node": action.next_node}),
    "padded": lambda action: json.dumps({"next_node": f" {action.next_node}\n", "args": action.args}),
    "encoded": lambda action: json.dumps(dumped(action)),
    "encoded twice": lambda action: json.dumps(json.dumps(dumped(action))),
    "encoded in prose": lambda action: f"So: {json.dumps(dumped(action))}.",
    "encoded args": lambda action: json.dumps({"next_node": action.next_node, "args": json.dumps(action.args)}),
    "python": lambda action: repr(action.model_dump()),
    "raw controls": lambda action: dumped(action).replace("\\n", "\n").replace("\\t", "\t").replace("\\u0000", "\x00"),
    "trailing comma": lambda action: dumped(action)[:-1] + ",\n}",
    "list": lambda action: f"[{dumped(action)}]",
    "nested": lambda action: json.dumps({"thought": "t", "action": action.model_dump()}),
    "five fields": lambda action: json.dumps(in_five_fields(action, "because")),
    "function call": lambda action: json.dumps({"name": action.next_node, "arguments": action.args}),
    "tool call": lambda action: json.dumps(
        {"tool_calls": [{"function": {"name": action.next_node, "arguments": json.dumps(action.args)}}]}
    ),
}


@given(ACTIONS, st.sampled_from(sorted(WRAPPINGS)))
def test_an_action_comes_back_from_any_wrapping(action: PlannerAction, wrapping: str) -> None:
    """Equal, whatever its texts hold: braces, fences, quotes, control characters."""
    reply = WRAPPINGS[wrapping](action)
    if wrapping == "raw controls" and "\\\\" in dumped(action):
        return  # a backslash of the text itself may stand before an n
    result = normalize_action(reply)
    assert result.error is None, (reply, result.complaint)
    assert result.action == action, reply


KEYS = ("next_node", "args", "plan", "join", "steps", "thought", "action", "tool", "node", "name", "arguments")
PIECES = [
    *"{}[]:,\"'\\ \n",
    *("```", "```json\n", "<think>", "</think>", "null", "None", "true", "NaN", "..."),
    *("\\n", '\\"', '",', '": "', '"}}'),
    *("prose and", '"final_response"', '"plan"', '"task"', '"search"', '"null"', '"alpha"', '"beta gamma"', "17", "4"),
    *("[]", "{}", *(f'"{key}": ' for key in (*KEYS, *ANSWER_KEYS))),
    '{"next_node": "search", "args": {"q": "delta", "n": 12}}',
    '{"next_node": "final_response", "args": {"answer": "epsilon"}}',
    '{"thought": "zeta", "next_node": null, "args": {"raw_answer": ["eta", 3]}, "plan": null}',
    '{"next_node": "plan", "args": {"steps": [{"node": "theta", "args": {"iota": true}}], "join": {"node": "kappa"}}}',
    '{"next_node": "task", "args": {"query": "lambda", "tool": "mu", "merge_strategy": "append"}}',
    '{"name": "search", "arguments": "{\\"q\\": \\"omicron\\"}"}',
]
REPLIES = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A reply in which something was cut out, cut off, put in or put twice."""
    reply = draw(REPLIES)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(reply)))
        end = draw(st.integers(start, min(len(reply), start + 12)))
        put = draw(st.sampled_from(["", reply[start:end] * 2, *PIECES]))
        reply = reply[:start] + put + reply[end:]
    return reply


@given(damaged() | st.text(), st.sampled_from(["auto", "unified", "legacy"]))
def test_nothing_raises_and_nothing_is_invented(reply: str, action_format: Any) -> None:
    """Every word of the arguments is in the reply; only the mode of a task may come from its alias or fields."""
    result = normalize_action(reply, action_format=action_format)
    assert (result.action is None) is (result.error is not None) is bool(result.complaint)
    for action in (result.action, *result.alternates):
        if action:
            json.dumps(action.model_dump(), allow_nan=False).encode()
            assert_words_stand_in(reply, action.args)


def assert_words_stand_in(reply: str, args: dict[str, Any]) -> None:
    """Words, not texts: escapes are decoded and texts joined."""
    given_args = {key: value for key, value in args.items() if key != "mode"}
    written = reply.lower()
    missing = [word for leaf in leaves(given_args) for word in re.findall(r"\w+", leaf.lower()) if word not in written]
    assert not missing, (reply, args)


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


@given(
    st.sampled_from(["", '{"next_node": "search", "args": {"q": "', "[" * 99, "```json\n", '"']),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join),
    st.sampled_from(["", '{"next_node": "search", "args": {}}']),
)
def test_work_grows_with_the_text(prefix: str, unit: str, suffix: str) -> None:
    """Counted, not timed: however often a hostile unit is repeated, a character is examined a few times at most."""
    reply = prefix + unit * (5000 // len(unit)) + suffix
    assert work(reply) <= 4 * len(reply) + 100


def work(text: str) -> int:
    """Characters examined in a scan."""
    scan = Scan(text)
    for _ in scan.items():
        pass
    return scan.characters_examined


def answering(answer: str) -> dict[str, Any]:
    return {"next_node": "final_response", "args": {"answer": answer}}


CHARACTERS = 1 << 17
LONG: dict[str, Callable[[int], str]] = {
    "an answer": lambda n: json.dumps(answering("word\n" * (n // 6))),
    "an answer in a fence": lambda n: f"```json\n{json.dumps({'answer': 'word ' * (n // 5)})}\n```",
    "an answer in Python": lambda n: repr(answering("it's " * (n // 5))),
    "an answer that is cut off": lambda n: json.dumps(answering("word " * (n // 5)))[:-3],
    "an encoded call": lambda n: json.dumps(json.dumps({"next_node": "save", "args": {"text": "word " * (n // 5)}})),
    "prose": lambda n: "no action at all, " * (n // 18),
    "comments": lambda n: "{" + "// why\n" * (n // 7) + '"next_node": "save"}',
    "many objects": lambda n: '{"x": 1} ' * (n // 9),
    "braces": lambda n: "{ " * (n // 2),
}


@pytest.mark.parametrize("shape", LONG)
def test_twice_the_reply_is_twice_the_work(shape: str) -> None:
    """Counted in characters that were examined."""
    half, whole = (work(LONG[shape](characters)) for characters in (CHARACTERS // 2, CHARACTERS))
    assert 0 < whole < 2.1 * half
    assert whole <= 4 * CHARACTERS


def test_a_reply_of_a_megabyte_is_an_ordinary_reply() -> None:
    """A long answer comes back whole."""
    action = answering('line with "quotes" and {braces}\n' * 30_000)
    assert normalize_action(json.dumps(action)).action == PlannerAction.model_validate(action)


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    "unit", ["'", '"', "\u2019", "*", "\\", "`", " ", "\n", "/*", "//", "-", "next node'", "'args' ", "{}", '{"a":']
)
@pytest.mark.parametrize(
    "prefix", ["", "{", "{x", "{{", "{, ", '{"', '"{', "[", "{/*", "<think>", '{"next_node": "save", "args": {']
)
def test_a_model_that_repeats_itself_stops_nobody(prefix: str, unit: str) -> None:
    """Half a megabyte of one character takes little time, with any text before it.

    Counters do not see a pattern that tries again.
    """
    reply = prefix + unit * (500_000 // len(unit))
    assert normalize_action(reply + '{"x": 1}').action is None
    stream = AnswerStream()
    for start in range(0, len(reply), 4096):
        assert stream.feed(reply[start : start + 4096]) == ""
