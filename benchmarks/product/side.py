"""One side of a comparison: a client, and the processes that serve it."""

import asyncio
from dataclasses import dataclass

from benchmarks.product import processes
from benchmarks.product.client import Asking

_SETTLE_S = 0.1
"""Pause after a case, so that the work that follows the end of its last run is measured with it."""


@dataclass
class Side:
    """Something that is measured: a client, and the processes that serve it, by their first ones.

    `streams`: whether it shows tokens and steps while it works.
    """

    client: Asking
    launchers: tuple[int, ...]
    streams: bool = True

    def pids(self) -> dict[int, str]:
        """Its processes now: process id → name."""
        return {pid: name for launcher in self.launchers for pid, name in processes.family(launcher).items()}

    def meter(self) -> "Meter":
        """Begin to measure CPU time."""
        return Meter(self.pids())


class Meter:
    """CPU time of processes from now on."""

    def __init__(self, pids: dict[int, str]) -> None:
        self._pids = pids
        self._before = processes.cpu_s(pids)

    async def used_s(self) -> dict[str, float]:
        """Seconds of CPU by process, once what the runs have left to do is done."""
        await asyncio.sleep(_SETTLE_S)
        return {name: after - self._before[name] for name, after in processes.cpu_s(self._pids).items()}
