"""What reading a reply and deciding a step cost, beside PenguiFlow's published package.

The package lives in an environment of its own under build/, made at the first run, and works in a process of its own;
both sides get the same replies and measure their own CPU time. `--quick` takes one minute instead of five, `--only abc`
chooses tables, `--no-bus` leaves out the rows that need a nats-server.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import uvloop

from benchmarks.instant_model import Script
from benchmarks.ratio_tables import Table, quantile, ratios, spread
from benchmarks.rules_alone import Alone
from benchmarks.system import started
from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.answer_stream import AnswerStream
from services.runtime.service import collect_garbage_rarely

VERSION = "3.11.2"
_ROOT = Path(__file__).resolve().parent.parent
_HOME = _ROOT / "build" / "penguiflow"
_US = 1e6
_LEAST_S = 0.02
"""CPU time that a round measures at least, where one call is shorter."""
TOOLS = frozenset({"search", "instant"})

WORDS = "word "
HEAD = '{"next_node": "final_response", "args": {"answer": "'


def answer(size: int) -> str:
    """A reply with an answer of so many characters."""
    return HEAD + WORDS * (size // len(WORDS)) + '"}}'


def call(rows: int) -> str:
    """A reply that calls a tool with so many rows of data."""
    data = [{"id": row, "name": f"customer {row}", "open": True, "amount": row * 1.5} for row in range(rows)]
    return json.dumps({"next_node": "search", "args": {"rows": data}})


REPLIES: dict[str, str] = {
    "a small call": json.dumps({"next_node": "search", "args": {"q": "open orders of ACME", "limit": 5}}),
    "an answer of 4 KB": answer(4 << 10),
    "an answer of 100 KB": answer(100 << 10),
    "a call with 4 KB of values": call(55),
    "a call with 100 KB of values": call(1400),
    "in a fence, 4 KB": f"I know enough.\n```json\n{answer(4 << 10)}\n```",
    "behind a thought, 4 KB": f"<think>Is it {{this}} or [that]?</think>\n{answer(4 << 10)}",
    "Python's notation": str({"next_node": "search", "args": {"q": "open orders", "limit": None, "all": True}}),
    "raw line breaks in a text": answer(400).replace("word word", "word\nword"),
    "cut off, 4 KB": call(55)[:-40],
    "prose, 4 KB": "I would look for the orders first. " * 120,
}
MARKDOWN = "- **a point** of some length, in words\\n"
ANSWERS: dict[str, str] = {
    "1 KB": answer(1 << 10),
    "100 KB": answer(100 << 10),
    "100 KB, Markdown": HEAD + MARKDOWN * ((100 << 10) // len(MARKDOWN)) + '"}}',
    "1 MB": answer(1 << 20),
}
CHUNKS = (4, 40)
_LONGEST_SEARCHED = 110_000
STEPS = (10, 200, 1000)
_WINDOW = 10


class Theirs:
    """The other process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.version = self._read()["version"]

    def ask(self, job: str, **given: Any) -> dict[str, Any]:
        """Have a job done; its result."""
        _pipe(self._process.stdin).write(json.dumps({"job": job, **given}) + "\n")
        _pipe(self._process.stdin).flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError("the process with PenguiFlow has ended; what it said stands above")
        found: dict[str, Any] = json.loads(line)
        return found


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # noqa: S101, asked for when the process was started
    return pipe


@contextmanager
def theirs() -> Iterator[Theirs]:
    """Make the environment where it is missing, and start the process."""
    python, ready = _HOME / "bin" / "python", _HOME / f"ready-{VERSION}"
    if not ready.exists():
        print(f"Installing penguiflow {VERSION} into {_HOME.relative_to(_ROOT)} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(_HOME)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"penguiflow=={VERSION}"]
        subprocess.run(pip, check=True)
        ready.touch()
    script = str(Path(__file__).with_name("penguiflow_side.py"))
    # -P: what lies beside the script are our modules, not theirs.
    with subprocess.Popen(
        [str(python), "-P", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_HOME
    ) as process:
        try:
            yield Theirs(process)
        finally:
            _pipe(process.stdin).close()
            process.wait(10)


def normalise(text: str, times: int) -> dict[str, Any]:
    """Seconds per reply, and what came out."""
    began = time.process_time()
    for _ in range(times):
        outcome = normalize_action(text, tools=TOOLS)
    seconds = (time.process_time() - began) / times
    return {"seconds": seconds, "outcome": outcome.action.next_node if outcome.action else "refused"}


def extract(text: str, size: int, times: int) -> dict[str, Any]:
    """Seconds per reply that comes in chunks of `size`."""
    shown = 0
    began = time.process_time()
    for _ in range(times):
        stream = AnswerStream(tools=TOOLS)
        shown = sum(len(stream.feed(text[start : start + size])) for start in range(0, len(text), size))
    return {"seconds": (time.process_time() - began) / times, "shown": shown}


def replies(other: Theirs, rounds: int) -> Table:
    """(a) From the text of a reply to an action."""
    table = Table(
        "(a) a reply → an action",
        ("reply", "characters", "ours µs", "theirs µs", "ours / theirs", "ours", "theirs"),
        "CPU time. The last columns say what was read. Work that an answer's stream shares with it counts under (b).",
    )
    for name, text in REPLIES.items():
        times = max(1, round(_LEAST_S / max(1e-6, normalise(text, 3)["seconds"])))
        found = _alternate(
            rounds, lambda text=text, times=times: normalise(text, times), other, "normalise", text=text, times=times
        )
        mine, its = ([each["seconds"] * _US for each in side] for side in found)
        outcomes = (side[-1]["outcome"] for side in found)
        table.add(name, str(len(text)), spread(mine, 1), spread(its, 1), spread(ratios(mine, its)), *outcomes)
    return table


def chunks(other: Theirs, rounds: int) -> Table:
    """(b) From the pieces of a reply to the characters of its answer."""
    table = Table(
        "(b) an answer, as it comes in",
        (
            "answer",
            "chunk",
            "ours µs/chunk",
            "theirs µs/chunk",
            "ours / theirs",
            "theirs as run",
            "ours ms/reply",
            "theirs ms/reply",
        ),
        "CPU time. `as run`: its planner also searches each chunk for a thought, in a time that grows with the reply\n"
        "(not measured above 100 KB).",
    )
    for name, text in ANSWERS.items():
        for size in CHUNKS:
            times, count = max(1, 20_000 // len(text)), -(-len(text) // size)
            given = {"text": text, "size": size, "times": times}
            mine_of, theirs_of = _alternate(
                rounds, lambda given=given: extract(**given), other, "extract", **given, as_run=False
            )
            if mine_of[-1]["shown"] != theirs_of[-1]["shown"]:
                raise RuntimeError("the two sides show different answers")
            mine, its = ([each["seconds"] for each in side] for side in (mine_of, theirs_of))
            searched = rounds if len(text) <= _LONGEST_SEARCHED else 0
            as_run = [other.ask("extract", **given, as_run=True)["seconds"] / count * _US for _ in range(searched)]
            table.add(
                name,
                str(size),
                spread([each / count * _US for each in mine]),
                spread([each / count * _US for each in its]),
                spread(ratios(mine, its)),
                spread(as_run),
                spread([each * 1e3 for each in mine]),
                spread([each * 1e3 for each in its]),
            )
    return table


def _alternate(
    rounds: int, ours: Any, other: Theirs, job: str, **given: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Both sides once a round, in turned order every second round."""
    mine, its = [], []
    for number in range(rounds):
        if number % 2:
            its.append(other.ask(job, **given))
        mine.append(ours())
        if not number % 2:
            its.append(other.ask(job, **given))
    return mine, its


def around(took: list[float], step: int) -> float:
    """Microseconds of a step, as the median of those around it."""
    middle = min(step, len(took) - _WINDOW // 2)
    return quantile(took[max(0, middle - _WINDOW // 2) : middle + _WINDOW // 2], 0.5) * _US


async def steps(other: Theirs, rounds: int, *, bus: bool) -> Table:
    """(c) One tool step of a long run."""
    table = Table(
        "(c) a step of a long run: CPU µs of the planner",
        ("planner", *(f"at step {step}" for step in STEPS), f"{STEPS[-1]} to {STEPS[0]}"),
        "A model and a tool that answer at once. `in memory`: nothing is kept, as theirs; `whole process`: every step\n"
        "is on disk, twice appended, its call sent and its outcome received over NATS.",
    )
    found: dict[str, list[list[float]]] = {"theirs, in memory": [], "ours, in memory": []}
    for number in range(rounds):
        order = list(found) if number % 2 else list(found)[::-1]
        for name in order:
            took = (
                other.ask("steps", count=STEPS[-1])["seconds"] if name.startswith("theirs") else Alone(STEPS[-1]).play()
            )
            found[name].append([around(took, step) for step in STEPS])
    if bus:
        async with started("2m") as system:
            await system.steps(Script(steps=20))
            script = Script(steps=STEPS[-1], clock="cpu")
            found["ours, whole process"] = [
                [around(took, step) for step in STEPS] for took in [await system.steps(script) for _ in range(rounds)]
            ]
    for name, each in found.items():
        columns = list(zip(*each, strict=True))
        table.add(name, *(spread(column, 0) for column in columns), spread(ratios(columns[-1], columns[0])))
    return table


async def main(rounds: int, only: str, *, bus: bool) -> None:
    """Print the tables."""
    with theirs() as other:
        print(
            f"Python {platform.python_version()}, PenguiFlow {other.version}; "
            f"medians over {rounds} rounds [lowest..highest]."
        )
        if "a" in only:
            print(replies(other, rounds).text(), flush=True)
        if "b" in only:
            print(chunks(other, rounds).text(), flush=True)
        if "c" in only:
            print((await steps(other, max(1, rounds // 2), bus=bus)).text(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_penguiflow", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="abc")
    parser.add_argument("--no-bus", action="store_true")
    wanted = parser.parse_args()
    print(f"Load before: {', '.join(f'{value:.1f}' for value in os.getloadavg())}.")
    collect_garbage_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(3 if wanted.quick else 7, wanted.only, bus=not wanted.no_bus))
