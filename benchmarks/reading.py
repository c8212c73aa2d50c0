"""What reading a reply costs: (g) seconds per megabyte, of the answer's stream and of the whole parse, and how they grow."""

import json
import time
from collections.abc import Callable

from benchmarks.answer_stream import REPLIES
from benchmarks.figures import Table, ratios, spread
from services.planner.actions import normalize_action
from services.planner.answer_stream import AnswerStream

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
        f"CPU time, chunks of {_CHUNK} characters, {megabytes:g} MB. `of twice the length`: how many times as long it took.",
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


def _seconds(work: Callable[[str], None], text: str) -> float:
    began = time.process_time()
    work(text)
    return max(1e-9, time.process_time() - began)
