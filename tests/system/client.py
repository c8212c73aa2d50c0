"""A client of the gateway that drops its connection at random and resumes with the last id.

It repeats a request that got no answer under the same idempotency key, so a run is asked for once whatever happens on
the way.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import httpx

from tests.system.traces import TERMINAL, Event

Frame = tuple[str, Event]
"""SSE id (empty but for the last event of a record), event."""
Hop = Callable[[], float | None]
"""Seconds until the client drops its connection next; None: it stays."""

_PAUSE_S = 0.1
_LIMIT_S = 180


class Client:
    """Asks for runs, follows and cancels them, over one gateway or several in turn."""

    def __init__(self, *urls: str) -> None:
        self._urls = urls
        self._turn = 0
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(5, read=20), limits=limits, trust_env=False)
        self.connections = 0
        """How often an event stream was opened."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    def _url(self, path: str) -> str:
        self._turn += 1
        return f"{self._urls[self._turn % len(self._urls)]}{path}"

    async def ask(self, query: str, key: str, **body: Any) -> str:
        """Ask for a run until it is accepted; return its id."""
        answer = await self.surely("POST", "/v1/runs", json={"query": query, **body}, headers={"Idempotency-Key": key})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["run_id"])

    async def cancel(self, run: str) -> None:
        """Ask for the end of a run until that is accepted."""
        answer = await self.surely("POST", f"/v1/runs/{run}/cancel", json={})
        assert answer.status_code in {200, 202, 204, 409}, answer.text

    async def status(self, run: str) -> dict[str, Any]:
        return await self.get(f"/v1/runs/{run}")

    async def get(self, path: str) -> dict[str, Any]:
        answer = await self.surely("GET", path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def surely(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Repeat a request until something other than 503 comes back."""
        while True:
            try:
                answer = await self._http.request(method, self._url(path), **request)
            except httpx.HTTPError:
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.status_code != 503:
                return answer
            await asyncio.sleep(_PAUSE_S)

    async def follow(self, run: str, seen: list[Frame], hop: Hop = lambda: None, after: str = "") -> Event:
        """Append every event of the run to `seen` and return the terminal one.

        A record that came only in part is forgotten at a hop.
        """
        until, fruitless = time.monotonic() + _LIMIT_S, 0
        while True:
            began, known = time.monotonic(), len(seen)
            # A loaded machine may need longer for the first record than until the next hop.
            patience = min((hop() or _LIMIT_S) * 2**fruitless, until - began)
            assert patience > 0, (
                f"run {run} has not ended for {_LIMIT_S} s; it has shown {[event['type'] for _, event in seen]}"
            )
            try:
                async with asyncio.timeout(patience):
                    async for frames in self._records(run, after):
                        seen += frames
                        after = frames[-1][0]
                        if frames[-1][1]["type"] in TERMINAL:
                            return frames[-1][1]
            except TimeoutError:
                fruitless = fruitless + 1 if len(seen) == known else 0
                continue
            except httpx.HTTPError:
                pass
            # The gateway was killed, or ended the stream: come back soon, but not in a hot loop.
            await asyncio.sleep(max(0.0, _PAUSE_S - (time.monotonic() - began)))

    async def _records(self, run: str, after: str) -> AsyncIterator[list[Frame]]:
        headers = {"Last-Event-ID": after} if after else {}
        async with self._http.stream("GET", self._url(f"/v1/runs/{run}/events"), headers=headers) as answer:
            if answer.status_code == 503:
                return
            assert answer.status_code == 200, f"{answer.status_code} {(await answer.aread()).decode()}"
            self.connections += 1
            frames: list[Frame] = []
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                if line:
                    name, _, value = line.partition(":")
                    if name:
                        fields[name] = value.removeprefix(" ")
                    continue
                if "data" in fields:
                    frames.append((fields.get("id", ""), json.loads(fields["data"])))
                    if "id" in fields:
                        yield frames
                        frames = []
                fields = {}
