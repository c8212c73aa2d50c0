"""What every peer has: where it is installed, how it is started, and a client of its HTTP API."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar

import aiohttp

from benchmarks.product.side import Side

_READY_TIMEOUT_S = 60


class Peer(ABC):
    """One peer below `home`. `install`: the shell commands that install it there."""

    name: ClassVar[str]
    install: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    """Paths below `home` of the programs that it is started with."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def missing(self) -> Path | None:
        """Return the first of its programs that does not exist."""
        return next((path for program in self.programs if not (path := self.home / program).exists()), None)

    @abstractmethod
    def started(self, folder: Path, model_url: str, http: aiohttp.ClientSession) -> AbstractAsyncContextManager[Side]:
        """Start its processes, with their data and logs in `folder`, and end them afterwards."""


async def answers(http: aiohttp.ClientSession, url: str, log: Path) -> None:
    """Return once a server answers with status 200. Raises RuntimeError with its log if it does not."""
    try:
        async with asyncio.timeout(_READY_TIMEOUT_S):
            while True:
                try:
                    async with http.get(url) as reply:
                        if reply.ok:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)
    except TimeoutError:
        said = await asyncio.to_thread(log.read_text, encoding="utf-8")
        raise RuntimeError(f"{url} does not answer: {said}") from None
