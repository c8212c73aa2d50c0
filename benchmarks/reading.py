"""What reading a reply costs: (g) seconds per megabyte, of the answer's stream and of the whole parse.

Tests count the characters that are examined; what a regular expression or a library does in between shows only here,
in CPU time.
"""

import json
import random
import time
from collections.abc import Callable

from benchmarks.answer_stream import REPLIES
from benchmarks.ratio_tables import Table, ratios, spread
from services.planner.models.types import Reply
from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.answer_stream import AnswerStream
from services.planner.strategies.react.reading import ReactReading

MB = 1 << 20
_CHUNK = 64
HOSTILE: dict[str, Callable[[int], str]] = {
    "a call of many values": lambda size: (
        '{"next_node": "save", "args": {"rows": [' + ", ".join(['{"a": 1.5, "b": "x"}'] * (size // 22)) + "]}}"
    ),
    "Python's notation": lambda size: repr({"next_node": "save", "args": {"rows": [{"a": None}] * (size // 13)}}),
    "cut off": lambda size: json.dumps({"next_node": "save", "args": {"text": "word " * (size // 5)}})[:-3],
    "braces": lambda size: "{ " * (size // 2),
    "objects": lambda size: '{"x": {"y": null}} ' * (size // 19),
    "prose": lambda size: "no action at all, " * (size // 18),
}


PIECES = (
    *"{[\"'\\`,:/#(<>=}]-0 \t\n",
    *(
        "<think>",
        "</think>",
        "```json\n",
        "```",
        "...",
        "None",
        "1e",
        "//",
        "/*",
        "{{",
        '"""',
        "'''",
        '\\"',
        "\\u00",
        "\\ud83d",
        "x: ",
        "json",
        "“",
        "<|",
    ),
    *('{"a":', '"next_node":', '{"next_node": "x", "args": {', '{"next_node": "final_response", "args": {"answer": "'),
)
BEFORE = (
    "",
    "text ",
    "<think>",
    "```json\n",
    '{"next_node": "x", "args": {"q": "',
    '{"next_node": "final_response", "args": {"answer": "',
)
BEHIND = ("", "}", '"}}', "```", '</think>{"next_node": "x", "args": {}}')
_REPEATED, _SLOW_S = 30_000, 0.2


def streamed(text: str) -> None:
    """Read a reply in chunks, as it comes in."""
    stream = AnswerStream()
    for start in range(0, len(text), _CHUNK):
        stream.feed(text[start : start + _CHUNK])


def parsed(text: str) -> None:
    """Read a whole reply."""
    normalize_action(text)


def reading(rounds: int, megabytes: float) -> Table:
    """(g) A reply of so many megabytes, and one of twice that."""
    table = Table(
        "(g) reading a reply",
        ("reply", "stream ms/MB", "of twice the length", "parse ms/MB", "of twice the length"),
        f"CPU time, chunks of {_CHUNK} characters, {megabytes:g} MB. `of twice the length`: how many times as long.",
    )
    for name, make in {**REPLIES, **HOSTILE}.items():
        once, twice = make(int(megabytes * MB)), make(int(2 * megabytes * MB))
        cells: list[str] = []
        for work in (streamed, parsed):
            short = [_seconds(work, once) for _ in range(rounds)]
            long = [_seconds(work, twice) for _ in range(rounds)]
            cells += [spread([seconds * 1e3 * MB / len(once) for seconds in short], 1), spread(ratios(long, short))]
        table.add(name, *cells)
    return table


def decided(text: str) -> None:
    """Read a whole reply, and its reasoning, as the planner does in the end."""
    reading = ReactReading({})
    reading.feed(text)
    reading.decide(Reply(text=text, reasoning=text))


def repeated(seconds: float, seed: int = 0) -> Table:
    """(g) Search at random for texts whose reading time grows faster than their length."""
    chance = random.Random(seed)
    table = Table(
        "(g) replies that repeat themselves",
        ("tried", "slowest, ms", "growth", "what"),
        f"CPU time of {_REPEATED:,} characters; `growth`: of twice as many, where that took more than {_SLOW_S:g} s.",
    )
    tried, slowest, worst, what = 0, 0.0, 0.0, ""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        unit, before, behind = "".join(chance.choices(PIECES, k=2)), chance.choice(BEFORE), chance.choice(BEHIND)
        times = _REPEATED // len(unit)
        took = _seconds(decided, before + unit * times + behind)
        tried, slowest = tried + 1, max(slowest, took)
        if took >= _SLOW_S:
            growth = _seconds(decided, before + unit * (2 * times) + behind) / took
            if growth > worst:
                worst, what = growth, repr((before, unit, behind))
    table.add(str(tried), f"{slowest * 1e3:.0f}", f"{worst:.1f}" if what else "none was slow", what)
    return table


def _seconds(work: Callable[[str], None], text: str) -> float:
    began = time.process_time()
    work(text)
    return max(1e-9, time.process_time() - began)
