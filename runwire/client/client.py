"""Ask a gateway for runs, watch them, stop them.

Rule 1: a request is repeated only where that is harmless: a question carries an idempotency key, made here unless the
caller has one.
Rule 2: following survives gateways that stop, crash or are replaced: it comes back with the last id, and gives every
event once.
Rule 3: a stream that cannot be resumed within `patience_s` raises; the run goes on without its listener.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Literal, Self

import httpx
from pydantic import TypeAdapter, ValidationError

from runwire._contracts_import import events, ids, runs, tools
from runwire.client.images import Image, image_inputs
from runwire.client.sse import EventTooLarge, SseDecoder
from runwire.errors import IdempotencyConflict, NotFound, RunwireError, Unreachable, error_of

__all__ = ["Client", "IdempotencyConflict", "NotFound", "RunStream", "RunwireError", "Unreachable"]

_EVENT: TypeAdapter[events.RunEvent] = TypeAdapter(events.RunEvent)
_SPECS = TypeAdapter(list[tools.ToolSpec])
_REFUSED = TypeAdapter(list[tools.RefusedTool])
_PASSING = frozenset({408, 429, 502, 503, 504})
_PAUSE_S, _MAX_PAUSE_S = 0.1, 5.0
_STEADY_S = 5.0
"""A stream that was open that long was no failure, even if nothing happened on it."""
_IMAGES_S = 120.0
"""A gateway looks at every image before it answers."""
_SILENCE_S = 45.0
"""Three heartbeats of a gateway: after that the connection is dead."""


class _Patience:
    """Pauses between attempts: random, growing, and not for ever."""

    def __init__(self, limit_s: float, url: httpx.URL) -> None:
        self._limit_s = limit_s
        self._place = f"{url.scheme}://{url.netloc.decode()}"
        self.reset()

    def reset(self) -> None:
        self._attempt = 0
        self._since: float | None = None

    async def wait(self, reason: Exception | None) -> None:
        """Pause before the next attempt.

        Raises Unreachable, or the gateway's own refusal, when that would be too late.
        """
        now = time.monotonic()
        self._since = self._since if self._since is not None else now
        ceiling = min(_MAX_PAUSE_S, _PAUSE_S * 2**self._attempt)
        pause = random.uniform(ceiling / 2, ceiling)  # noqa: S311, a spread, not a secret
        if isinstance(reason, RunwireError) and reason.retry_after:
            pause = random.uniform(reason.retry_after, reason.retry_after * 1.5)  # noqa: S311
        if now + pause - self._since > self._limit_s:
            if isinstance(reason, RunwireError):
                raise reason
            raise Unreachable(
                "unreachable", f"no gateway answered at {self._place} for {self._limit_s:g} s: {reason!r}"
            ) from reason
        self._attempt += 1
        await asyncio.sleep(pause)


class Client:
    """A gateway and, where it wants one, the caller's API key.

    Use it as `async with Client(...) as client`, or `aclose` it.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", key: str | None = None, *, patience_s: float = 60.0) -> None:
        _check_address(url)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=httpx.Timeout(30, connect=5), limits=limits
        )
        self._patience_s = patience_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def start(
        self, query: str, *, images: Iterable[Image] = (), idempotency_key: str | None = None, **options: Any
    ) -> str:
        """Ask a question and return the run's id; `options` are fields of `RunInput`, as `agent`, `session_id`, `limits`.

        `images` are shown to the model: paths of files, bytes, ids of artifacts, or `ImageInput`s. Raises RunwireError;
        IdempotencyConflict when the key was used for another question; OSError and ValueError for images that cannot be
        sent.
        """
        headers, more = {"Idempotency-Key": idempotency_key or ids.new_id()}, dict[str, Any]()
        if shown := await asyncio.to_thread(image_inputs, images):
            options, more = {**options, "images": shown}, {"timeout": httpx.Timeout(_IMAGES_S, connect=5)}
        answer = await self._ask("POST", "/v1/runs", json={"query": query, **options}, headers=headers, **more)
        return runs.RunAccepted.model_validate_json(answer.content).run_id

    def follow(
        self, run_id: str, after: str | None = None, *, artifacts: Literal["values", "refs"] = "values"
    ) -> "RunStream":
        """Watch a run: `async for event in client.follow(run_id)` gives its events to the last one; `after` is an earlier `cursor`.

        The last one holds JSON artifacts up to 1 MiB as values, or with `artifacts="refs"` as references.
        """
        return RunStream(self._http, run_id, after, self._patience_s, artifacts)

    async def status(self, run_id: str) -> runs.RunStatus:
        """Tell where a run stands. Raises NotFound."""
        answer = await self._ask("GET", f"/v1/runs/{_checked(run_id)}")
        return runs.RunStatus.model_validate_json(answer.content)

    async def result(self, run_id: str) -> runs.RunStatus:
        """Wait for the end of a run and return its status, with the payload, however it ended. Raises NotFound."""
        async for _ in self.follow(run_id):
            pass
        return await self.status(run_id)

    async def chat(self, query: str, **options: Any) -> runs.RunStatus:
        """Ask a question and wait for the end of its run: `.payload.raw_answer` is the answer.

        As `start`, then `result`.
        """
        return await self.result(await self.start(query, **options))

    async def cancel(self, run_id: str, reason: str = "") -> runs.RunStatus:
        """End a run now and return where it stood; one that has ended stays as it is. Raises NotFound."""
        answer = await self._ask("POST", f"/v1/runs/{_checked(run_id)}/cancel", json={"reason": reason})
        return runs.RunStatus.model_validate_json(answer.content)

    async def delete(self, run_id: str) -> None:
        """Delete a run with its events, artifacts and images; one that goes on is cancelled first.

        Raises NotFound, also the next time.
        """
        await self._ask("DELETE", f"/v1/runs/{_checked(run_id)}")

    async def list_runs(self, status: runs.State | None = None) -> AsyncIterator[runs.RunStatus]:
        """Give the caller's runs, newest first, without payloads."""
        wanted: dict[str, Any] = {"limit": 100} | ({"status": status} if status else {})
        while True:
            page = (await self._ask("GET", "/v1/runs", params=wanted)).json()
            for run in page["runs"]:
                yield runs.RunStatus.model_validate(run)
            if not (cursor := page.get("next_cursor")):
                return
            wanted["cursor"] = cursor

    async def refused_tools(self) -> list[tools.RefusedTool]:
        """List the tools that announce themselves and cannot be used, each with the reason."""
        return _REFUSED.validate_python((await self._ask("GET", "/v1/tools")).json().get("refused", []))

    async def tools(self) -> list[tools.ToolSpec]:
        """List the tools that are there right now."""
        return _SPECS.validate_python((await self._ask("GET", "/v1/tools")).json()["tools"])

    async def fetch(self, artifact_id: str) -> AsyncIterator[bytes]:
        """Give an artifact's bytes, piece by piece; a connection that breaks is taken up where it broke.

        Raises NotFound.
        """
        path, patience, at, tag = (
            f"/v1/artifacts/{_checked(artifact_id)}",
            _Patience(self._patience_s, self._http.base_url),
            0,
            "",
        )
        while True:
            # An artifact never changes; the tag makes sure.
            headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={at}-", "If-Range": tag} if at else {})
            reason: Exception
            try:
                async with self._http.stream("GET", path, headers=headers) as answer:
                    if answer.status_code == (httpx.codes.PARTIAL_CONTENT if at else httpx.codes.OK):
                        tag = answer.headers.get("etag", "")
                        async for piece in answer.aiter_bytes():
                            at += len(piece)
                            patience.reset()
                            yield piece
                        return
                    await answer.aread()
                    reason = _passing(answer)
            except httpx.TransportError as error:
                reason = error
            await patience.wait(reason)

    async def _ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request that may be repeated, until it is answered. Raises RunwireError."""
        patience = _Patience(self._patience_s, self._http.base_url)
        while True:
            reason: Exception
            try:
                answer = await self._http.request(method, path, **request)
                if answer.is_success:
                    return answer
                reason = _passing(answer)
            except httpx.TransportError as error:
                reason = error
            await patience.wait(reason)


def _passing(answer: httpx.Response) -> RunwireError:
    """Return a refusal after which another attempt may succeed; raise any other."""
    error = _error(answer)
    if answer.status_code not in _PASSING:
        raise error
    return error


def _check_address(url: str) -> None:
    """Raise RunwireError for what can never be reached, instead of trying it for as long as the patience lasts."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise RunwireError("bad_url", f"{url!r} is no address of a gateway; one looks like http://127.0.0.1:8080")


class RunStream:
    """The events of one run, in order, each once, to the terminal one. Iterate once; `cursor` says how far it has come.

    Raises NotFound for an unknown run, Unreachable when no gateway came back in time, RunwireError for other refusals.
    """

    def __init__(
        self, http: httpx.AsyncClient, run_id: str, after: str | None, patience_s: float, artifacts: str = "values"
    ) -> None:
        self.run_id = run_id
        self._query = "" if artifacts == "values" else f"?artifacts={artifacts}"
        self.cursor = after or ""
        """The id of the last record whose events were all given: `follow(run_id, after=cursor)` goes on from there."""
        self._http = http
        self._patience = _Patience(patience_s, http.base_url)
        self._ended = False

    async def __aiter__(self) -> AsyncIterator[events.RunEvent]:
        path = f"/v1/runs/{_checked(self.run_id)}/events{self._query}"
        while not self._ended:
            reason: Exception | None = None
            opened = time.monotonic()
            try:
                headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self.cursor} if self.cursor else {})
                async with self._http.stream(
                    "GET", path, headers=headers, timeout=httpx.Timeout(_SILENCE_S, connect=5)
                ) as response:
                    async for event in self._events_of(response):
                        yield event
            except (httpx.TransportError, EventTooLarge) as error:
                reason = error
            except RunwireError as error:
                if error.status not in _PASSING:
                    raise
                reason = error
            if time.monotonic() - opened > _STEADY_S:
                self._patience.reset()
            if not self._ended:
                await self._patience.wait(reason)

    async def _events_of(self, response: httpx.Response) -> AsyncIterator[events.RunEvent]:
        if response.status_code == httpx.codes.NO_CONTENT:
            self._ended = True
            return
        if not response.is_success:
            await response.aread()
            raise _error(response)
        decoder = SseDecoder()
        # A record's events are given together: its id stands on the last one, and a stream that breaks off before it
        # starts with the first.
        record: list[events.RunEvent] = []
        async for piece in response.aiter_bytes():
            for sent in decoder.feed(piece):
                record.append(_parsed(sent.data))
                if sent.id is None:
                    continue
                self._patience.reset()
                for event in record:
                    if event is record[-1]:
                        self.cursor = sent.id
                        self._ended = event.type in events.TERMINAL
                    yield event
                record = []
                if self._ended:
                    return


def _parsed(data: str) -> events.RunEvent:
    try:
        return _EVENT.validate_json(data)
    except ValidationError:
        # Of a newer version, in a way that this one does not understand: better than no event at all.
        return events.UnknownEvent.model_validate({"type": "unknown", **json.loads(data)})


def _checked(run_id: str) -> str:
    try:
        return ids.checked_id(run_id)
    except ids.InvalidName as error:
        raise NotFound("not_found", str(error)) from error


def _error(answer: httpx.Response) -> RunwireError:
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    return error_of(answer.status_code, answer.headers.get("retry-after"), problem)
