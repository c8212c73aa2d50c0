"""What a reply of a megabyte costs the other runs of a planner: (g) CPU time, and how long the loop stood still.

A reply is read as the planner reads it: in parts while it comes in, as a whole in a thread. Beside it, in the same row,
an idle loop: on a machine that does other work a loop is late without standing still.
"""

import asyncio
import json
import random
import time
from collections.abc import Callable

from benchmarks.ratio_tables import Table
from benchmarks.reading import BEFORE, BEHIND, PIECES
from contracts.wire.records import Record
from services.planner.effects.model_call import in_parts
from services.planner.models.types import Delta, Reply
from services.planner.run.ending import terminal
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Final
from services.planner.strategies.react.reading import ReactReading
from tests.support.loop_lag import loop_lag

MB = 1 << 20
_IDLE_S = 0.2
COLUMNS = ("reply", "CPU s while it comes", "CPU s as a whole", "loop stood still, ms", "idle loop, ms")
_FINAL = '{"next_node": "final_response", "args": {"answer": "'
_SOURCES = [{"title": f"page {number}", "url": f"https://example.org/{number}"} for number in range(10_000)]
_ACTIONS = [{"action_id": f"more_{number}", "label": "more"} for number in range(10_000)]


def _repeated(unit: str, before: str = "", behind: str = "") -> Callable[[int], str]:
    return lambda size: before + unit * (size // len(unit)) + behind


SHAPES: dict[str, Callable[[int], str]] = {
    "one token for ever": _repeated("word"),
    "blanks": _repeated(" \n"),
    "think tags": _repeated("<think>abc</think>"),
    "think tags, never closed": _repeated("<think>"),
    "{": _repeated("{"),
    "[": _repeated("["),
    '"': _repeated('"'),
    "\\": _repeated("\\"),
    "{{ in prose": _repeated("x {{ y "),
    '{"a": in each other': _repeated('{"a":'),
    "a list of objects": _repeated('{"a":1},', "[", "{}]"),
    "a list of lists": _repeated("[],", '{"next_node": "save", "args": {"a": [', "1]}}"),
    "lists ninety deep": _repeated("[" * 90 + "]" * 90 + ",", '{"next_node": "save", "args": {"a": [', "1]}}"),
    "fences": _repeated("```json\n{}\n```\n"),
    "quotes in each other": _repeated('{\\"a\\":'),
    "halves of characters": _repeated("\ud83d", _FINAL, '"}}'),
    "escaped halves": _repeated("\\ud83d", _FINAL, '"}}'),
    "an answer": _repeated("word ", _FINAL, '"}}'),
    "an answer, then {": _repeated("{", _FINAL + 'x"}}'),
    "unknown fields": lambda size: (
        '{"next_node": null, "args": {' + ",".join(f'"k{n}":1' for n in range(size // 12)) + "}}"
    ),
    "10,000 sources, 10,000 suggested actions": lambda _: json.dumps(
        {"next_node": "final_response", "args": {"answer": "x", "sources": _SOURCES, "suggested_actions": _ACTIONS}}
    ),
}


async def read(text: str) -> tuple[float, float]:
    """Read a reply as the planner does, its payload included; return the CPU seconds while it comes and as a whole."""
    reading = ReactReading({})
    began = time.process_time()
    for part in in_parts(Delta(text=text)):
        reading.feed(part.text)
        await asyncio.sleep(0)
    came = time.process_time()
    decision = await asyncio.to_thread(reading.decide, Reply(text=text))
    if isinstance(decision, Final):
        terminal.fitting(Record(at=0, events=[terminal.answered(Run(), decision.args)]))
    return came - began, time.process_time() - came


async def _measured(text: str) -> tuple[float, float, float, float]:
    async with loop_lag() as idle:
        await asyncio.sleep(_IDLE_S)
    async with loop_lag() as lag:
        coming, whole = await read(text)
    return coming, whole, lag.worst_s, idle.worst_s


async def long_replies(megabytes: float, searched_s: float, seed: int = 0) -> Table:
    """(g) The known shapes, and the slowest of as many made at random as fit into some seconds."""
    table = Table("(g) replies of a megabyte", COLUMNS, f"{megabytes:g} MB, read in parts and then in a thread.")
    for name, make in SHAPES.items():
        _add(table, name, await _measured(make(int(megabytes * MB))))
    chance, until = random.Random(seed), time.monotonic() + searched_s
    tried, slowest, what = 0, (0.0,) * 4, ""
    while time.monotonic() < until:
        unit, before, behind = "".join(chance.choices(PIECES, k=2)), chance.choice(BEFORE), chance.choice(BEHIND)
        found = await _measured(_repeated(unit, before, behind)(int(megabytes * MB)))
        tried += 1
        if found[0] + found[1] > slowest[0] + slowest[1]:
            slowest, what = found, repr((before, unit, behind))
    _add(table, f"slowest of {tried} at random: {what}", slowest)
    return table


def _add(table: Table, name: str, found: tuple[float, ...]) -> None:
    coming, whole, lag, idle = found
    table.add(name, f"{coming:.2f}", f"{whole:.2f}", f"{lag * 1e3:.0f}", f"{idle * 1e3:.0f}")
