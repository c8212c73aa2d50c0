"""What holds for every reply: the split does not matter, the final parse agrees, no argument is shown, linear work."""

import json
import random
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.runs.decisions import FINAL_RESPONSE
from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.answer_stream import AnswerStream, settle
from tests.support import samples

TOOLS = frozenset({"save", "a", "Final_Response"})
CANARY = "canary"
FINAL = json.dumps({"next_node": "final_response", "args": {"answer": CANARY}})

# Pieces that replies are made of; put together at random they are mostly broken, and broken in every way.
PIECES = [
    *"{}[]\"'`,: \n\\",
    *("```json\n", "<think>", "</think>", "\\n", "\\u00e9", "\\ud83d", "\\ude00", "\ud83d", "\ude00"),
    *("# c\n", "// c\n"),
    *("next_node", "word", "null", "None", "true", "5", "-1.5e3", "NaN", "“", "{curly}", "{x: 1}", "{ lone "),
    *("[1]", "[note]", "{{", "}}"),
    *(f'"{key}"' for key in ("next_node", "args", "answer", "raw_answer", "plan", "steps", "text", "action", "tool")),
    *('"save"', '"final_response"', '"next_node": "final_response"', '"next_node": "save"', '"next_node": null'),
    *('"next_node": " NULL "', '"args": {"answer": "abc"}', '"args": ["q", "r"]', '"args": "text"'),
    *('"plan": [{"node": "a"}]', '"plan": null', '"answer": 5', '"answer": ["q", "r"]'),
    '{"next_node": "final_response", "args": {"answer": "hello"}}',
    '{"args": {"answer": "late"}, "next_node": null}',
    json.dumps({"next_node": "save", "args": {"note": FINAL}}),
    repr({"next_node": "save", "args": {"note": FINAL}}),
]
words = st.sampled_from(
    ["", "hello", "two\nlines", 'a "quote"', "é😀", "{", " {}", "null", "</think>", "```", "\ud83d", CANARY]
)
answer_keys = st.sampled_from(["answer", "steps", "node", "text", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(answer_keys, inner, max_size=3),
    max_leaves=8,
)
nodes = st.sampled_from(
    ["final_response", " Final_response ", "Final_Response", "save", "plan", "task", "null", None, 5, ""]
)
argument_keys = st.sampled_from(["answer", "raw_answer", "text", "response", "steps", "x"])
arguments = values | st.dictionaries(argument_keys, values, max_size=4)
fields = st.one_of(
    st.tuples(st.just("next_node"), nodes),
    st.tuples(st.just("args"), arguments),
    st.tuples(st.just("plan"), values),
    st.tuples(st.sampled_from(["thought", "answer", "steps", "action", "tool", "name", "arguments", "join"]), values),
)


@st.composite
def objects(draw: st.DrawFn) -> str:
    """An object with the keys of an action, in any order, some of them twice, in any writing."""
    members = draw(st.lists(fields, min_size=1, max_size=5))
    ascii_only, indent = draw(st.booleans()), draw(st.sampled_from([None, 1]))
    written = [
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=ascii_only, indent=indent)}" for key, value in members
    ]
    end = draw(st.sampled_from(["}", "}", "}", ",}", "", "]"])) + draw(st.sampled_from(["", " ", "}"]))
    return "{" + ", ".join(written) + end


soup = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
replies = st.one_of(objects(), st.lists(st.one_of(objects(), soup), max_size=4).map("".join), soup)


@settings(derandomize=True)
@given(reply=replies, seed=st.integers(0, 1 << 16))
def test_the_split_does_not_matter(reply: str, seed: int) -> None:
    """Chunks of any sizes show what the whole reply shows."""
    whole = AnswerStream(tools=TOOLS)
    whole.feed(reply)
    stream = AnswerStream(tools=TOOLS)
    shown, rest, rng = "", reply, random.Random(seed)
    while rest:
        size = rng.randint(1, 9)
        shown += stream.feed(rest[:size])
        rest = rest[size:]
    assert (shown, stream.is_terminal) == (whole.shown, whole.is_terminal)
    assert shown == shown.encode("utf-8", "replace").decode(), "no half of a pair is shown"


@settings(derandomize=True)
@given(reply=replies, action_format=st.sampled_from(["auto", "unified", "legacy"]))
def test_the_final_parse_agrees(reply: str, action_format: Literal["auto", "unified", "legacy"]) -> None:
    """What was shown is the beginning of what is executed, unless the reply is no action."""
    stream = AnswerStream(action_format=action_format, tools=TOOLS)
    stream.feed(reply)
    normalized = normalize_action(reply, tools=TOOLS, action_format=action_format)
    settled = settle(stream, normalized.action)
    assert settled.void == ("unparseable" if stream.shown and normalized.action is None else None)
    if normalized.action is not None:
        is_final = normalized.action.next_node == FINAL_RESPONSE
        assert stream.shown + settled.text == (normalized.action.args.get("answer", "") if is_final else "")
        assert is_final or not stream.is_terminal


def disguised(rng: random.Random, action: dict[str, Any]) -> str:
    """An action as weak models write it, after something that is no action."""
    keys = list(action)
    rng.shuffle(keys)
    action = {key: action[key] for key in keys}
    text = json.dumps(action, indent=rng.choice([None, 2]))
    ways: list[Callable[[], str]] = [
        lambda: text,
        lambda: repr(action),
        lambda: json.dumps(text),
        lambda: text.replace('"next_node"', "next_node", 1),
        lambda: text.replace('"', "'"),
        lambda: text.replace("{", "{ // note\n", 1),
        lambda: text.replace('\\"', '"'),
        lambda: text.replace("null", "None"),
        lambda: text.replace('"args"', f'"args": {{"answer": "{CANARY}"}}, "args"', bool(action.get("next_node"))),
        lambda: f"[{text}, {text}]",
    ]
    text = rng.choice(ways)()
    odd = ["Text {curly} [1]: ", "```json\n", f"<think>{FINAL}</think>", '{"x": ' + json.dumps(FINAL) + "}"]
    before = rng.choice(["", *odd, "\ufeff", "[", "{{"])
    if rng.random() < 0.1:
        return before + text[: rng.randrange(10, len(text))]
    # Only what names a node makes an action behind it an alternate.
    return before + text + rng.choice(["", "\n```", *([FINAL, "}" + FINAL] if "next_node" in action else [])])


def hidden(rng: random.Random, depth: int = 0) -> Any:
    """A value with the canary in it: as an answer, as a whole final action, as the text of one, deep inside."""
    kinds: list[Callable[[], Any]] = [
        lambda: CANARY,
        lambda: FINAL,
        lambda: json.dumps(FINAL),
        lambda: repr(json.loads(FINAL)),
        lambda: f'he said "hi" {FINAL}',
        lambda: f"}}}} {FINAL}",
        lambda: json.loads(FINAL),
        lambda: {"next_node": "final_response", "answer": CANARY, "args": CANARY},
    ]
    if depth < 3:
        kinds += [
            lambda: [hidden(rng, depth + 1), CANARY],
            lambda: {rng.choice(["answer", "raw_answer", "args", "next_node", "x", "{"]): hidden(rng, depth + 1)},
        ]
    return rng.choice(kinds)()


def hostile(rng: random.Random) -> dict[str, Any]:
    """A tool call, a plan or a task whose arguments hold the canary."""
    keys = rng.sample(["answer", "raw_answer", "args", "next_node", "plan", "note"], rng.randint(1, 3))
    args: Any = {key: hidden(rng) for key in keys}
    args = rng.choice([args, args, hidden(rng), [CANARY, hidden(rng)]])
    step = {"node": "save", "args": args}
    return rng.choice(
        [
            {"next_node": "save", "args": args},
            {"next_node": "save", "args": args, "answer": hidden(rng), "thought": "final_response"},
            {"next_node": "Final_Response", "args": args},
            {"next_node": rng.choice(["plan", "parallel", " PLAN "]), "args": {"steps": [step], "answer": CANARY}},
            {
                "next_node": rng.choice(["task", "task.tool"]),
                "args": {"query": CANARY, "tool_args": args, "answer": CANARY},
            },
            {"plan": [step], "next_node": None, "args": None},
            {"action": step | {"next_node": "save"}, "args": args},
            {"tool": "save", "args": args},
            {"name": "save", "arguments": args},
        ]
    )


@pytest.mark.parametrize("seed", samples.seeds(2))
def test_no_argument_of_a_tool_is_ever_seen(seed: int) -> None:
    """Hostile nestings, decoys and duplicates; one character of an argument would be one too many.

    Neither early nor in the end: no reply of these is read as an answer that holds one.
    """
    rng = random.Random(seed)
    for _ in range(20 * settings().max_examples):
        text = disguised(rng, hostile(rng))
        stream = AnswerStream(tools=TOOLS)
        cut = rng.randrange(len(text) + 1)
        assert stream.feed(text[:cut]) + stream.feed(text[cut:]) == "", text
        action = normalize_action(text, tools=TOOLS).action
        assert action is None or action.next_node != FINAL_RESPONSE or CANARY not in str(action.args), text


CHARACTERS = 1 << 17
HEAD = '{"next_node": "final_response", "args": {"answer": "'
SHAPES: dict[str, Callable[[int], str]] = {
    "an answer": lambda n: HEAD + "word " * (n // 5) + '"}}',
    "an answer of escapes": lambda n: HEAD + "\\n\\ud83d\\ude00" * (n // 14) + '"}}',
    "an answer before its node": lambda n: '{"args": {"answer": "' + "word " * (n // 5) + '"}, "next_node": null}',
    "blanks before an encoded answer": lambda n: HEAD[:33] + '"args": "' + " " * n + "{",
    "lines": lambda n: HEAD[:33] + '"args": ["' + 'line", "' * (n // 8) + '"]}',
    "a tool's text": lambda n: '{"next_node": "save", "args": {"text": "' + "word " * (n // 5) + '"}}',
    "one long key": lambda n: '{"' + "k" * n + '": 1, ' + HEAD[1:] + 'x"}}',
    "one long node": lambda n: '{"next_node": "' + " " * n + 'final_response"}',
    "a number": lambda n: '{"x": ' + "1" * n + "}",
    "prose": lambda n: "word " * (n // 5) + HEAD + 'x"}}',
    "braces": lambda n: "{ " * (n // 2) + HEAD,
    "balanced braces": lambda n: "{%" * (n // 4) + "}}" * (n // 4) + HEAD,
    "brackets": lambda n: "[" * n + HEAD,
    "tags": lambda n: "<think" * (n // 6) + "<think>" + "</thin" * (n // 6) + HEAD,
    "objects": lambda n: '{"x": [1, {"y": null}]} ' * (n // 24) + HEAD + 'x"}}',
    "nested objects": lambda n: '{"x": ' * (n // 6),
}


def work(text: str, size: int) -> int:
    """Characters examined when `text` comes in chunks of `size`."""
    stream = AnswerStream()
    for start in range(0, len(text), size):
        stream.feed(text[start : start + size])
    return stream.characters_examined


@pytest.mark.sample(5)
@pytest.mark.parametrize("size", [3, 64])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_reply(shape: str, size: int) -> None:
    """Twice the reply, twice the characters examined; each of them once, but for the few that end something."""
    half, whole = (work(SHAPES[shape](characters), size) for characters in (CHARACTERS // 2, CHARACTERS))
    assert whole < 2.1 * half + size
    assert whole <= 2 * len(SHAPES[shape](CHARACTERS))
