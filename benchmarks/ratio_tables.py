"""Tables of medians over rounds with their range, and of ratios that are taken round by round.

Rule 1: a ratio compares two cases of the same round, so that a machine that is slower for a while slows both.
Rule 2: what is printed is the median over the rounds and, in brackets, the lowest and the highest round.
"""

import asyncio
import itertools
import statistics
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")
Case = Callable[[], Awaitable[T]]


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of the values lie; not a number when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))] if ordered else float("nan")


def spread(rounds: Sequence[float], digits: int = 2) -> str:
    """Median and range over the rounds, as `1.20 [1.05..1.31]`."""
    if not rounds:
        return "-"
    low, middle, high = (f"{value:.{digits}f}" for value in (min(rounds), statistics.median(rounds), max(rounds)))
    return f"{middle} [{low}..{high}]"


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Round by round, one divided by the other."""
    return [a / b for a, b in zip(above, below, strict=True)]


async def together(works: Iterable[Awaitable[list[float]]]) -> list[float]:
    """Do several things at once and put what they measured into one list."""
    return list(itertools.chain.from_iterable(await asyncio.gather(*works)))


async def alternate(rounds: int, cases: Mapping[K, Case[T]]) -> dict[K, list[T]]:
    """Run every case once a round, in turned order every second round, and return what they gave, by name."""
    found: dict[K, list[T]] = {name: [] for name in cases}
    for number in range(rounds):
        for name in list(cases) if number % 2 == 0 else reversed(list(cases)):
            found[name].append(await cases[name]())
    return found


@dataclass
class Table:
    """Rows under a title. `note` says in a line what the columns mean."""

    title: str
    columns: tuple[str, ...]
    note: str = ""
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """One more row."""
        self.rows.append(cells)

    def text(self) -> str:
        """The table as Markdown, aligned for a terminal."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.columns))]
        shown = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
            for line in lines
        ]
        shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return "\n".join(["", f"### {self.title}", *([self.note] if self.note else []), "", *shown])
