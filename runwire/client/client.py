"""Start runs at a gateway, follow them, stop them.

Rule 1: a request is repeated only where that is harmless: a question carries an idempotency key, made here unless the
caller gives one.
Rule 2: following a run survives gateways that stop, crash or are replaced (`run_stream`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

import httpx
from pydantic import BaseModel, ValidationError

from contracts import ids, runs
from contracts.artifacts import ArtifactRef, StoredArtifact
from contracts.tools import RefusedTool, ToolSpec
from runwire.client.images import Image, image_inputs
from runwire.client.options import RunOptions
from runwire.client.retries import Patience, Retries, checked, retryable
from runwire.client.run_stream import RunStream
from runwire.errors import RunwireError

T = TypeVar("T", bound=BaseModel)
_MAX_PORT = 65535
_IMAGES_TIMEOUT_S = 120.0
"""A gateway checks every image before it answers."""


class _RunPage(BaseModel):
    runs: list[runs.RunStatus]
    next_cursor: str | None = None


class _ArtifactPage(BaseModel):
    artifacts: list[StoredArtifact]
    next_cursor: str | None = None


class _Tools(BaseModel):
    tools: list[ToolSpec]
    refused: list[RefusedTool] = []


class _Agents(BaseModel):
    agents: list[runs.AgentModels]


class Client:
    """A client of one gateway, with the caller's API key where the gateway needs one.

    Use it as `async with Client(...) as client`, or call `aclose`. `patience_s`: for how long a request that may be
    repeated is tried again. It is 5 s at most while nobody listens at the address and no gateway has answered this
    client. Raises RunwireError for what is no address (`bad_url`) and what cannot be a key (`bad_key`).
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", key: str | None = None, *, patience_s: float = 60.0) -> None:
        _check_address(url)
        if key and not (key.isascii() and key.isprintable()):
            raise RunwireError("bad_key", "an API key has visible ASCII characters only")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=httpx.Timeout(30, connect=5), limits=limits
        )
        self._patience = Patience(patience_s, self._http.base_url)

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def start(
        self,
        query: str,
        *,
        images: Iterable[Image] = (),
        idempotency_key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Start a run and return its id.

        Args:
            query: the question.
            images: shown to the model: paths of files, bytes, ids of artifacts, or `ImageInput`s.
            idempotency_key: the same key with the same question gives the same run; default: a new one.
            **options: see `RunOptions`.

        Raises:
            IdempotencyConflict: the key was used for another question.
            RunwireError: the gateway refused, or cannot be reached.
            OSError: an image file cannot be read.
            ValueError: an image cannot be sent.
        """
        body: dict[str, Any] = {"query": query, **options}
        request: dict[str, Any] = {"headers": {"Idempotency-Key": idempotency_key or ids.new_id()}}
        if shown := await asyncio.to_thread(image_inputs, images):
            body["images"], request["timeout"] = shown, httpx.Timeout(_IMAGES_TIMEOUT_S, connect=5)
        return (await self._ask(runs.RunAccepted, "POST", "/v1/runs", json=body, **request)).run_id

    def follow(
        self,
        run_id: str,
        after: str | None = None,
        *,
        artifacts: Literal["values", "refs"] = "values",
        on_comment: Callable[[str], object] = lambda _: None,
    ) -> RunStream:
        """Return the events of a run: `async for event in client.follow(run_id)`; `after` is an earlier `cursor`.

        The last event holds JSON artifacts up to 1 MiB as values, or with `artifacts="refs"` as references.
        `on_comment`: called with what the gateway says beside events, such as `waiting, place 17 of 300`.
        """
        return RunStream(self._http, run_id, after, self._patience, artifacts, on_comment)

    async def status(self, run_id: str, *, artifacts: Literal["values", "refs"] = "values") -> runs.RunStatus:
        """Return the status of a run, and once it has ended its payload, as `follow` describes it. Raises NotFound."""
        path, params = f"/v1/runs/{checked(run_id)}", {"artifacts": artifacts}
        return await self._ask(runs.RunStatus, "GET", path, params=params)

    async def result(self, run_id: str) -> runs.RunStatus:
        """Wait for the end of a run and return its status, with the payload, however it ended. Raises NotFound."""
        async for _ in self.follow(run_id):
            pass
        return await self.status(run_id)

    async def chat(
        self,
        query: str,
        *,
        images: Iterable[Image] = (),
        idempotency_key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> runs.RunStatus:
        """Start a run and wait for its end: `.payload.raw_answer` is the answer. Arguments and errors as in `start`."""
        return await self.result(await self.start(query, images=images, idempotency_key=idempotency_key, **options))

    async def cancel(self, run_id: str, reason: str = "") -> runs.RunStatus:
        """Cancel a run and return its status before that; one that has ended stays as it is. Raises NotFound."""
        path = f"/v1/runs/{checked(run_id)}/cancel"
        return await self._ask(runs.RunStatus, "POST", path, json={"reason": reason})

    async def delete(self, run_id: str) -> None:
        """Delete a run with its events, artifacts and images; one that is still running is cancelled first.

        Raises NotFound, also when it is called again.
        """
        await self._request("DELETE", f"/v1/runs/{checked(run_id)}")

    async def list_runs(
        self, status: runs.State | None = None, *, limit: int | None = None
    ) -> AsyncIterator[runs.RunStatus]:
        """Yield the caller's runs, newest first, without payloads. `limit`: at most so many; None: all."""
        params: dict[str, str | int] = {"limit": min(limit or 100, 100)} | ({"status": status} if status else {})
        yielded = 0
        while True:
            page = await self._ask(_RunPage, "GET", "/v1/runs", params=params)
            for run in page.runs:
                yield run
                yielded += 1
                if yielded == limit:
                    return
            if not page.next_cursor:
                return
            params["cursor"] = page.next_cursor

    async def agents(self) -> list[runs.AgentModels]:
        """List the agents that a run may name, each with the models that answer its runs."""
        return (await self._ask(_Agents, "GET", "/v1/agents")).agents

    async def refused_tools(self) -> list[RefusedTool]:
        """List the tools that announce what cannot be used or is not accepted, each with the reason."""
        return (await self._ask(_Tools, "GET", "/v1/tools")).refused

    async def tools(self) -> list[ToolSpec]:
        """List the tools that are available now."""
        return (await self._ask(_Tools, "GET", "/v1/tools")).tools

    async def artifacts(self, run_id: str) -> AsyncIterator[ArtifactRef]:
        """Yield the references of what a run's tools have stored and of the images that it was shown, oldest first.

        Raises NotFound.
        """
        path, params = f"/v1/runs/{checked(run_id)}/artifacts", {"limit": "500"}
        while True:
            page = await self._ask(_ArtifactPage, "GET", path, params=params)
            for stored in page.artifacts:
                yield stored.ref
            if not page.next_cursor:
                return
            params["cursor"] = page.next_cursor

    async def fetch(self, artifact_id: str) -> AsyncIterator[bytes]:
        """Yield an artifact's bytes in pieces; a download that breaks off is continued. Raises NotFound."""
        path = f"/v1/artifacts/{checked(artifact_id)}"
        retries = Retries(self._patience)
        received_bytes, etag = 0, ""
        while True:
            headers = {"Accept-Encoding": "identity"}
            if received_bytes:  # An artifact never changes; the tag makes sure.
                headers |= {"Range": f"bytes={received_bytes}-", "If-Range": etag}
            reason: Exception
            try:
                async with self._http.stream("GET", path, headers=headers) as answer:
                    retries.note_answer()
                    if answer.status_code == (httpx.codes.PARTIAL_CONTENT if received_bytes else httpx.codes.OK):
                        etag = answer.headers.get("etag", "")
                        async for piece in answer.aiter_bytes():
                            received_bytes += len(piece)
                            retries.reset()
                            yield piece
                        return
                    await answer.aread()
                    reason = retryable(answer)
            except httpx.TransportError as error:
                reason = error
            await retries.pause(reason)

    async def _ask(self, kind: type[T], method: str, path: str, **request: Any) -> T:
        """Send a request that may be repeated, and return its answer. Raises RunwireError."""
        answer = await self._request(method, path, **request)
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError:
            url, status = self._http.base_url, answer.status_code
            text = f"{url} answers {method} {path} with {status}, and not as a Runwire gateway of this version does"
            raise RunwireError("not_a_gateway", text, status=status) from None

    async def _request(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request that may be repeated, until it is answered. Raises RunwireError."""
        retries = Retries(self._patience)
        while True:
            reason: Exception
            try:
                answer = await self._http.request(method, path, **request)
                retries.note_answer()
                if answer.is_success:
                    return answer
                reason = retryable(answer)
            except httpx.TransportError as error:
                reason = error
            await retries.pause(reason)


def _check_address(url: str) -> None:
    """Raise RunwireError for what can never be reached, instead of trying it for `patience_s`."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in {"http", "https"} or not parsed.host or (parsed.port or 0) > _MAX_PORT:
        raise RunwireError("bad_url", f"{url!r} is not a gateway's address; one looks like http://127.0.0.1:8080")
