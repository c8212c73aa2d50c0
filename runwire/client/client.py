"""Start runs at a gateway, follow them, decide about their pauses, stop them.

Rule 1: a request is repeated only where that is harmless: a question, an input and a decision carry an idempotency key,
made here unless the caller gives one.
Rule 2: following a run or session survives gateways that stop, crash or are replaced (`gateway.protocols.events`).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Literal, Self, Unpack
from urllib.parse import quote

import httpx

from contracts.artifacts import ArtifactRef, StoredArtifact
from contracts.runs import requests as runs
from contracts.runs.decisions import PlanReport
from contracts.runs.events import Paused, RunEvent
from contracts.runs.pauses import OpenPause, PauseDecision
from contracts.sessions.records import SessionEntry, SessionStatus
from contracts.wire import names
from runwire.client.background import ScheduleMethods, TaskMethods
from runwire.client.event_stream import RunStream, SessionStream
from runwire.client.options import Image, RunOptions, image_inputs
from runwire.client.tools import ToolMethods
from runwire.client.transport import Transport, checked
from runwire.errors import NotFound

_ID = re.compile(r"[!-~]{1,200}", re.ASCII)
_IMAGES_TIMEOUT_S = 120.0
"""A gateway checks every image before it answers."""


class Client(TaskMethods, ScheduleMethods, ToolMethods):
    """A client of one gateway, with the caller's API key where the gateway needs one.

    Use it as `async with Client(...) as client`, or call `aclose`. `patience_s`: for how long a request that may be
    repeated is tried again. It is 5 s at most while nobody listens at the address and no gateway has answered this
    client. Raises RunwireError for what is no address (`bad_url`) and what cannot be a key (`bad_key`).
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", key: str | None = None, *, patience_s: float = 60.0) -> None:
        self._transport = Transport(url, key, patience_s)

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
        await self._transport.http.aclose()

    async def start(
        self,
        query: str,
        *,
        images: Iterable[Image] = (),
        idempotency_key: str | None = None,
        request_id: str | None = None,
        trace_id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Start a run and return its id.

        Args:
            query: the question.
            images: shown to the model: paths of files, bytes, ids of artifacts, or `ImageInput`s.
            idempotency_key: the same key with the same question gives the same run; default: a new one.
            request_id: your id of the request, which tools get and log; default: the run's id.
            trace_id: your id of the trace that the request is part of; default: a new one.
            **options: see `RunOptions`.

        Raises:
            IdempotencyConflict: the key was used for another question.
            RunwireError: the gateway refused, or cannot be reached.
            OSError: an image file cannot be read.
            ValueError: an image cannot be sent, or an id is not 1 to 200 visible ASCII characters.
        """
        named = {"X-Request-Id": request_id, "X-Trace-Id": trace_id}
        given = {name: value for name, value in named.items() if value is not None}
        for name, value in given.items():
            if not _ID.fullmatch(value):
                raise ValueError(f"{name} takes 1 to 200 visible ASCII characters, not {value[:50]!r}")
        request = await _with_images({"query": query, **options}, images, idempotency_key)
        request["headers"] |= given
        return (await self._transport.ask(runs.RunAccepted, "POST", "/v1/runs", **request)).run_id

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
        `on_comment`: called with what the gateway says beside events, such as `waiting`.
        """
        return RunStream(self._transport, run_id, after, artifacts, on_comment)

    async def status(self, run_id: str, *, artifacts: Literal["values", "refs"] = "values") -> runs.RunStatus:
        """Return the status of a run, and once it has ended its payload, as `follow` describes it. Raises NotFound."""
        path, params = f"/v1/runs/{checked(run_id)}", {"artifacts": artifacts}
        return await self._transport.ask(runs.RunStatus, "GET", path, params=params)

    async def result(self, run_id: str) -> runs.RunStatus:
        """Wait for the end of a run and return its status, with the payload, however it ended. Raises NotFound."""
        async for _ in self.follow(run_id):
            pass
        return await self.status(run_id)

    async def wait(self, run_id: str, *, on_event: Callable[[RunEvent], object] = lambda _: None) -> runs.RunStatus:
        """Wait until a run has ended or has an open pause (`.pauses`), and return its status. Raises NotFound.

        `on_event`: called with each event on the way.
        """
        async with aclosing(aiter(self.follow(run_id, artifacts="refs"))) as events:
            async for event in events:
                on_event(event)
                if isinstance(event, Paused) and event.pause_id is not None:
                    status = await self.status(run_id)
                    if status.pauses or status.ended_at is not None:
                        return status
        return await self.status(run_id)

    async def chat(
        self,
        query: str,
        *,
        images: Iterable[Image] = (),
        idempotency_key: str | None = None,
        request_id: str | None = None,
        trace_id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> runs.RunStatus:
        """Start a run and wait for its end: `.payload.raw_answer` is the answer. Arguments and errors as in `start`.

        If the run waits for a person, `.payload` is None and `.pauses` holds what it waits for; `wait` continues after
        the decisions.
        """
        run_id = await self.start(
            query,
            images=images,
            idempotency_key=idempotency_key,
            request_id=request_id,
            trace_id=trace_id,
            **options,
        )
        return await self.wait(run_id)

    async def pauses(self, run_id: str) -> list[OpenPause]:
        """Return what a run waits for a person to decide. Raises NotFound."""
        return (await self.status(run_id, artifacts="refs")).pauses

    async def approve(self, pause: OpenPause, *, note: str = "", idempotency_key: str | None = None) -> None:
        """Let the call that waits be executed as the pause shows it; `note` is for the model.

        As `reject`, `edit` and `answer` it raises PauseChanged, PauseClosed, RunAlreadyEnded and NotFound, and
        RunwireError where the pause stays open: `invalid_decision`, `invalid_input`.
        """
        await self._decide(pause, "approve", {"note": note}, (), idempotency_key)

    async def reject(self, pause: OpenPause, *, note: str = "", idempotency_key: str | None = None) -> None:
        """Have the call fail, or the question go without an answer; the model reads `note`. Raises as `approve`."""
        await self._decide(pause, "reject", {"note": note}, (), idempotency_key)

    async def edit(
        self, pause: OpenPause, args: dict[str, Any], *, note: str = "", idempotency_key: str | None = None
    ) -> None:
        """Approve the call with other arguments: `args` are all of them. Raises as `approve`."""
        await self._decide(pause, "edit", {"args": args, "note": note}, (), idempotency_key)

    async def answer(
        self,
        pause: OpenPause,
        value: Any,
        *,
        images: Iterable[Image] = (),
        images_remove: Iterable[str] = (),
        note: str = "",
        idempotency_key: str | None = None,
    ) -> None:
        """Answer a question with a value that is valid by `pause.input_schema`. Raises as `approve`.

        The model is shown `images` from now on, and those whose ids are in `images_remove` no longer.
        """
        fields = {"input": value, "images_remove": list(images_remove), "note": note}
        await self._decide(pause, "answer", fields, images, idempotency_key)

    async def _decide(
        self,
        pause: OpenPause,
        decision: PauseDecision,
        fields: dict[str, Any],
        images: Iterable[Image],
        idempotency_key: str | None,
    ) -> None:
        body = {"pause_id": pause.pause_id, "token": pause.token, "decision": decision, **fields}
        request = await _with_images(body, images, idempotency_key)
        await self._transport.settle(f"/v1/runs/{checked(pause.run_id)}/resume", **request)

    async def send_input(
        self,
        run_id: str,
        text: str = "",
        *,
        images: Iterable[Image] = (),
        redirect: bool = False,
        idempotency_key: str | None = None,
    ) -> None:
        """Add to a run that is under way: the model receives it with its next decision.

        `redirect`: the text takes the place of the question, and what the model writes now is superseded. Raises
        RunAlreadyEnded, NotFound, and RunwireError `too_many_inputs` while 64 wait for the model.
        """
        request = await _with_images({"text": text, "redirect": redirect}, images, idempotency_key)
        await self._transport.settle(f"/v1/runs/{checked(run_id)}/input", **request)

    async def cancel(self, run_id: str, reason: str = "") -> runs.RunStatus:
        """Cancel a run and return its status before that; one that has ended stays as it is. Raises NotFound."""
        path = f"/v1/runs/{checked(run_id)}/cancel"
        return await self._transport.ask(runs.RunStatus, "POST", path, json={"reason": reason})

    async def delete(self, run_id: str) -> None:
        """Delete a run with its events, artifacts and images; one that is still running is cancelled first.

        Raises NotFound, also when it is called again.
        """
        await self._transport.request("DELETE", f"/v1/runs/{checked(run_id)}")

    def list_runs(
        self,
        status: runs.State | runs.Waits | None = None,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        agent: str | None = None,
        waits: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[runs.RunStatus]:
        """Yield the caller's runs, newest first, without payloads. `limit`: at most so many; None: all.

        `waits`: instead of a status, those that wait for a person or a top-up, with their pauses.
        """
        params = {"status": status, "session_id": session_id, "user_id": user_id, "agent": agent}
        params |= {"waits": "true" if waits else None}
        return self._transport.listed(runs.RunStatus, "/v1/runs", limit, limit=min(limit or 100, 100), **params)

    def sessions(self, *, limit: int | None = None) -> AsyncIterator[SessionEntry]:
        """Yield the caller's sessions, newest first. `limit`: at most so many; None: all."""
        return self._transport.listed(SessionEntry, "/v1/sessions", limit, limit=min(limit or 100, 100))

    async def session(self, session_id: str) -> SessionStatus:
        """Return a session: its runs, queue, summary, context and open pauses. Raises NotFound."""
        return await self._transport.ask(SessionStatus, "GET", _session_path(session_id))

    def session_events(self, session_id: str, after: str | None = None) -> SessionStream:
        """Return the events of a session, without end: `async for event in client.session_events(session_id)`.

        `after` is an earlier `cursor`. Only the deletion of the session ends them. Raises NotFound.
        """
        return SessionStream(self._transport, _session_path(session_id), after)

    async def set_context(self, session_id: str, values: dict[str, Any]) -> None:
        """Set values that later runs of a session are shown as untrusted data; None removes a name."""
        await self._transport.request("PUT", f"{_session_path(session_id)}/context", json={"values": values})

    async def delete_session(self, session_id: str) -> None:
        """Delete a session with its runs and artifacts; open runs are cancelled first. Raises NotFound."""
        await self._transport.request("DELETE", _session_path(session_id))

    async def check_plan(
        self, plan: Any, *, tools: Iterable[str] | None = None, outputs: Iterable[Any] | None = None
    ) -> PlanReport:
        """Check a plan against the tools that are present, as a run does before its first call.

        Args:
            plan: as a model gives it: `{"type": …}`, or `{"calls": […]}`.
            tools: names of the tools that count; None: all that the key may use.
            outputs: results of its calls, in order, with which templates are resolved; None: they are not.

        Raises RunwireError: the gateway refused, or cannot be reached; `invalid_input` names the field.
        """
        given = {"tools": tools, "outputs": outputs}
        body = {"plan": plan} | {name: list(values) for name, values in given.items() if values is not None}
        return await self._transport.ask(PlanReport, "POST", "/v1/plans/check", json=body)

    async def agents(self) -> list[runs.AgentModels]:
        """List the agents that a run may name, each with the models that answer its runs."""
        return [agent async for agent in self._transport.listed(runs.AgentModels, "/v1/agents")]

    async def artifacts(
        self,
        run_id: str | None = None,
        *,
        session_id: str | None = None,
        own_id: str | None = None,
        skill_id: str | None = None,
    ) -> AsyncIterator[ArtifactRef]:
        """Yield the references of what a run, or a session, has stored, oldest first: also images that it was shown.

        With `own_id`: the newest artifact to which a tool gave this id, of each tool that did, newest first.

        Raises NotFound, and ValueError unless either a run or a session is given.
        """
        if (run_id is None) == (session_id is None):
            raise ValueError("give either a run or a session")
        path = "/v1/artifacts" if run_id is None else f"/v1/runs/{checked(run_id)}/artifacts"
        wanted: dict[str, str | int | None] = {"session_id": session_id, "own_id": own_id, "skill_id": skill_id}
        async for stored in self._transport.listed(StoredArtifact, path, limit=500, **wanted):
            yield stored.ref

    def fetch(self, artifact_id: str) -> AsyncIterator[bytes]:
        """Yield an artifact's bytes in pieces; a download that breaks off is continued. Raises NotFound."""
        return self._transport.download(f"/v1/artifacts/{checked(artifact_id)}")


async def _with_images(body: dict[str, Any], images: Iterable[Image], idempotency_key: str | None) -> dict[str, Any]:
    """A request with its images and its idempotency key. Raises OSError and ValueError for images."""
    request: dict[str, Any] = {"headers": {"Idempotency-Key": idempotency_key or names.new_id()}}
    if shown := await asyncio.to_thread(image_inputs, images):
        body["images"], request["timeout"] = shown, httpx.Timeout(_IMAGES_TIMEOUT_S, connect=5)
    return {**request, "json": body}


def _session_path(session_id: str) -> str:
    """The address of a session, whose id may be any text. Raises NotFound for an empty one."""
    if not session_id:
        raise NotFound("not_found", "a session's id is not empty")
    return f"/v1/sessions/{quote(session_id, safe='').replace('.', '%2E')}"
