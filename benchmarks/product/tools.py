"""The tool of most benchmarks, served by `runwire serve`; the bare loop calls the same function. And a guarded one.

A call that takes time writes the moment at which it began into the file that BENCHMARK_CALLS names: what a recovery is
judged by.
"""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from runwire import tool


@dataclass
class Echo:
    """What the tool gives back: a plan may name its field."""

    number: int


@tool(desc="Return the number of the call, after a pause.")
async def echo(key: str, number: int, pause_ms: int) -> Echo:
    """Give back what came in."""
    if pause_ms:
        _note(f"{key} {number} {time.monotonic_ns()}\n")
        await asyncio.sleep(pause_ms / 1000)
    return Echo(number)


@tool(desc="Return the number of the call, once a person has approved it.", requires_approval=True)
async def guarded(key: str, number: int, pause_ms: int) -> Echo:
    """Give back what came in."""
    return await echo(key, number, pause_ms)


def _note(line: str) -> None:
    with Path(os.environ["BENCHMARK_CALLS"]).open("a", encoding="utf-8") as file:
        file.write(line)
