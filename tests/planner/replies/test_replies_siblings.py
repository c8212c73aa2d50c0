"""Kinds of odd replies, each as tables of cases and variations: all are read right.

The bytes are those of a server, so this goes from the event to the decision. `make test` tries a sample.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from services.planner.models.openai_reply import ReplyReader
from services.planner.models.types import Delta, Reply
from services.planner.run.turn.decision import Calls, Decision, Final
from services.planner.strategies.planned.reading import AnswerReading
from services.planner.strategies.react.reading import ReactReading, TextReading
from services.planner.strategies.react.strategy import NativeReading
from tests.planner.replies.test_notations import NOTATIONS
from tests.planner.replies.test_plain_text import AS_WRITTEN
from tests.planner.replies.test_thoughts import MARKS

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
SPECS = {name: ToolSpec(name=name, input_schema=SCHEMA) for name in ("look", "note")}
READINGS: dict[str, Callable[[], Any]] = {
    "json": lambda: ReactReading(SPECS),
    "native": lambda: NativeReading(SPECS),
    "alone": lambda: TextReading(SPECS, {}),
    "respond": lambda: AnswerReading({}, "respond"),
}
SIZES = (1, 3, 8, 1000)
UNOPENED = "the closing mark alone"
ANSWER, LOOK = "Tea is grown.", (("look", {"q": "tea"}),)
Case = tuple[str, str, Sequence[dict[str, Any]], object]
"""Name, reading, deltas, and what is read of them: calls, or the text of an answer."""


def final(answer: str) -> str:
    return json.dumps({"next_node": "final_response", "args": {"answer": answer}})


def action(name: str = "look", q: str = "tea") -> str:
    return json.dumps({"next_node": name, "args": {"q": q}})


def texts(text: str, size: int) -> list[dict[str, Any]]:
    return [{"content": text[at : at + size]} for at in range(0, len(text), size)]


def piece(arguments: Any, **more: Any) -> dict[str, Any]:
    function = {key: more.pop(key) for key in ("name",) if key in more} | {"arguments": arguments}
    return {"tool_calls": [{**more, "function": function}]}


def read(reading: Any, deltas: Sequence[dict[str, Any]]) -> tuple[Decision, str]:
    """The decision of a reply, and what was shown of it."""
    reader = ReplyReader("m")
    chunks = [json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas]
    chunks += [json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}), "[DONE]"]

    def feed(delta: Delta) -> str:
        return str(reading.feed(delta.text) if delta.call is None else reading.feed_call(delta.call))

    shown = "".join(feed(delta) for each in chunks for delta in reader.read_line(f"data: {each}\n".encode()))
    shown += "".join(map(feed, reader.end()))
    return reading.decide(Reply(text=reader.text, tool_calls=reader.tool_calls)), shown


DRAFTS = {
    "words": "Keep it short.",
    "an answer": f"Say {final('a draft')} then.",
    "a call": f"Maybe\n{action('note')}\n?",
    "a fence": f"Like this:\n```json\n{final('a draft')}\n```\nNo.",
    "an open fence": "Like this:\n```json\nNo.",
    "a broken call": f"Maybe {action('note')[:-5]} or not.",
    "a notation": '<tool_call>{"name": "note", "arguments": {"q": "x"}}</tool_call>\nNo.',
    "code": "if a < b: x = {'k': [1]}",
    "a list": "1. First.\n2. Second: `x`.\n\n- so\n",
}
ESCAPES = [r"\alpha", r"\vec", r"D:\x64", r"\e[0m", r"\(x\)", r"\s+\d", r"\frac{1}", r"{\bfseries x}", r"C:\bin\files"]
ESCAPES += [r"\forall", r"C:\Users", r"\underline", r"\101", r"a\-b", r"\_c", r"\U0001F600", r"\u{1F}"]
BEFORE = ("", "Let me look.\n\n", "I look for tea, as you said:\n", "<think>Hm.</think>\n", "Hm.\n</think>\n")
NAMES = ["functions.look", "default_api:look", "mcp__web__look", "look:0", "functions.look:0", "look#1", "look[0]"]
NAMES += ["look<|channel|>json", "Look", " look ", "look()", "/look", "`look`", "functions_look_0", "look_0"]
A, B = '{"q": "a"}', '{"q": "b"}'
BOTH = (("look", {"q": "a"}), ("look", {"q": "b"}))
KEYS: dict[str, Callable[[int], dict[str, Any]]] = {
    "numbers": lambda number: {"index": number, "id": f"c{number}"},
    "no numbers": lambda number: {"id": f"c{number}"},
    "null": lambda number: {"index": None, "id": f"c{number}"},
    "texts": lambda number: {"index": str(number), "id": f"c{number}"},
    "from one": lambda number: {"index": number + 1},
    "zero for all": lambda number: {"index": 0, "id": f"c{number}"},
    "zero without ids": lambda _: {"index": 0},
    "one id for all": lambda number: {"index": number, "id": "c"},
}
SPLITS: dict[str, Callable[[str, dict[str, Any]], list[dict[str, Any]]]] = {
    "whole": lambda text, key: [piece(text, name="look", **key)],
    "in two": lambda text, key: [piece(text[:4], name="look", **key), piece(text[4:], **key)],
    "name alone": lambda text, key: [piece("", name="look", **key), piece(text[:3], **key), piece(text[3:], **key)],
    "name again": lambda text, key: [piece(text[:4], name="look", **key), piece(text[4:], name="look", **key)],
    "an empty object first": lambda text, key: [piece("{}", name="look", **key), piece(text, **key)],
}
ENCODINGS: dict[str, Callable[[str, dict[str, Any]], list[dict[str, Any]]]] = {
    "an object": lambda text, key: [piece(json.loads(text), name="look", **key)],
    "a fence": lambda text, key: [piece(f"```json\n{text}\n```", name="look", **key)],
    "encoded": lambda text, key: [piece(json.dumps(text), name="look", **key)],
    "a mark behind": lambda text, key: [piece(f"{text}<|im_end|>", name="look", **key)],
}


def thoughts(size: int) -> Iterator[Case]:
    """A thought with and without its opening mark, before a call, an answer in JSON and a text."""
    for (opening, closing), (draft, said), before in product(MARKS, DRAFTS.items(), (True, False)):
        thought = f"{opening if before else ''}{said}\n{closing}\n\n"
        name = f"{closing}, {draft}, {'both' if before else UNOPENED}"
        yield f"{name}, call", "json", texts(thought + action(), size), LOOK
        yield f"{name}, answer", "json", texts(thought + final(ANSWER), size), ANSWER
        for reading in ("native", "alone", "respond"):
            yield f"{name}, text, {reading}", reading, texts(thought + ANSWER, size), ANSWER


def as_written(size: int) -> Iterator[Case]:
    """A text that is the answer, alone, behind a thought and in JSON, with a mark of a template behind it."""
    for text, end, reading in product(AS_WRITTEN, ("", "<|im_end|>", "</s>"), READINGS):
        if reading == "json":
            yield f"{text}, json", "json", texts(final(text) + end, size), text
        else:
            yield f"{text}, {end}, {reading}", reading, texts(text + end, size), text
            thought = f"<think>Hm.</think>\n{text}{end}"
            yield f"{text}, {end}, {reading}, thought", reading, texts(thought, size), text


def characters(size: int) -> Iterator[Case]:
    """Escapes that are none, in answers, in calls and in native arguments."""
    for escape in ESCAPES:
        answer = final("@").replace("@", escape)
        yield f"{escape}, answer", "json", texts(answer, size), escape
        yield f"{escape}, call", "json", texts(action(q="@").replace("@", escape), size), (("look", {"q": escape}),)
        arguments = '{"q": "' + escape + '"}'
        pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
        native = [piece(each, index=0, **({} if at else {"name": "look"})) for at, each in enumerate(pieces)]
        yield f"{escape}, native", "native", native, (("look", {"q": escape}),)


def notations(size: int) -> Iterator[Case]:
    """Calls in a text, behind prose and behind a thought; never an answer where no tool was offered."""
    for (name, text), before in product(NOTATIONS.items(), BEFORE):
        for reading in ("native", "json"):
            yield f"{name}, {before!r}, {reading}", reading, texts(before + text, size), LOOK


def names(size: int) -> Iterator[Case]:
    for name in NAMES:
        yield f"{name}, json", "json", texts(action(name), size), LOOK
        yield f"{name}, native", "native", [piece('{"q": "tea"}', name=name, index=0, id="1")], LOOK


def pieces(_size: int) -> Iterator[Case]:
    """Two calls in pieces. Where neither a number nor an id tells them apart, their arguments have to."""
    for (key, keyed), (split, cut) in product(KEYS.items(), (SPLITS | ENCODINGS).items()):
        if key == "zero without ids" and split not in {*SPLITS, "an object"}:
            continue
        yield f"{key}, {split}", "native", [*cut(A, keyed(0)), *cut(B, keyed(1))], BOTH


KINDS: dict[str, Callable[[int], Iterator[Case]]] = {
    each.__name__: each for each in (thoughts, as_written, characters, notations, names, pieces)
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_case_in_every_variation(kind: str, size: int) -> None:
    """The calls are made, or the answer is given as it is. What was shown is the beginning of it."""
    wrong = []
    for name, reading, deltas, expected in KINDS[kind](size):
        decision, shown = read(READINGS[reading](), deltas)
        answer = decision.args.get("answer") if isinstance(decision, Final) else None
        found = decision.calls if isinstance(decision, Calls) else answer
        is_hidden = isinstance(found, str) and UNOPENED not in name and not found.startswith(shown)
        if found != expected or is_hidden:
            wrong.append(f"{name}: {found!r}, shown: {shown!r}")
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong)
