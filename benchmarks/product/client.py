"""Clients over HTTP and Server-Sent Events that note when they received what."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp
import orjson

from benchmarks.product.script import TOKEN, Script

_LIMITS = {"max_steps": 10_000, "deadline_s": 3600}


@dataclass
class Received:
    """One run as its client sees it, in seconds."""

    began: float = field(default_factory=time.monotonic)
    first_token_s: float = 0.0
    """From the request to the first token."""
    took_s: float = 0.0
    """From the request to the end."""
    observed_at: list[float] = field(default_factory=list)
    """The moment of each tool's result."""
    ages_s: list[float] = field(default_factory=list)
    """Of each token: from the model server to here."""
    rest: str = ""
    """Text after the last whole token."""

    def add_text(self, text: str) -> None:
        """Note the whole tokens of the answer so far."""
        text, now, end = self.rest + text, time.monotonic_ns(), 0
        for found in TOKEN.finditer(text):
            self.first_token_s = self.first_token_s or now / 1e9 - self.began
            self.ages_s.append((now - int(found[1])) / 1e9)
            end = found.end()
        self.rest = text[end:]


def nothing(_: int) -> None:
    """Ignore a step."""


class Asking(Protocol):
    """A client of one server."""

    async def ask(self, script: Script, on_step: Callable[[int], None] = nothing) -> Received:
        """Start a run and follow it to its end; `on_step` is called with the number of results received so far.

        Raises RuntimeError when it does not end in its whole answer.
        """


class Client:
    """Asks the product's gateway or the bare loop."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self.url = url

    async def ask(self, script: Script, on_step: Callable[[int], None] = nothing) -> Received:
        """Start a run and follow it to its end."""
        seen, event = Received(), b""
        body = {"query": script.question(), "limits": _LIMITS}
        async with self._http.post(f"{self.url}/v1/runs", json=body, headers={"Accept": "text/event-stream"}) as reply:
            reply.raise_for_status()
            async for line in reply.content:
                if line.startswith(b"event: "):
                    event = line[7:-1]
                elif event == b"chunk" and line.startswith(b"data: "):
                    seen.add_text(orjson.loads(line[6:])["text"])
                elif event == b"observed" and line.startswith(b"data: "):
                    seen.observed_at.append(time.monotonic())
                    on_step(len(seen.observed_at))
                elif line.startswith(b"data: ") and event in {b"done", b"error", b"cancelled"}:
                    seen.took_s = time.monotonic() - seen.began
                    break
            await reply.read()
        if event != b"done" or len(seen.ages_s) < script.tokens or len(seen.observed_at) != script.calls:
            raise RuntimeError(f"{script} ended otherwise: {event!r} {line!r}")
        return seen

    async def start(self, script: Script) -> str:
        """Start a run and do not follow it; its address."""
        async with self._http.post(f"{self.url}/v1/runs", json={"query": script.question()}) as reply:
            reply.raise_for_status()
            return self.url + str((await reply.json())["url"])

    async def status(self, address: str) -> str:
        """How a run stands; empty while the server does not answer."""
        try:
            async with self._http.get(address) as reply:
                return str((await reply.json())["status"]) if reply.status == 200 else ""
        except (aiohttp.ClientError, TimeoutError):
            return ""
