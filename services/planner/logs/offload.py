"""Keeps records small: artifacts of all calls together, or the arguments of all calls that wait, can exceed a record.

Rule 1: if the artifacts of a payload exceed 128 KiB together, the largest become references. If the store is
unavailable, they stay inline, so that the run ends in any case.
Rule 2: so do large arguments in `paused`, which are whole in the record of the step. If the store is unavailable, they
are left out of `paused`. Edited arguments stay inline: that record alone holds them.
Rule 3: so do the text of a part of a chat turn, and a payload, above 32 KiB. A fold needs the text: `filled` reads it
with the log.
Rule 4: the log of a session holds the beginning of each task's answer. `TaskResults` reads the rest in the newest
record of the task's run, for a run that names the task: its results are no longer held. Results above 32 KiB together
are stored as an artifact of that run; its model is shown beginning and end of each, and may read the artifact.
"""

import asyncio
import hashlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import structlog

from contracts.artifacts import SAID, ArtifactRef
from contracts.runs.events import Cancelled, Done, Error, Paused, PayloadProposed, RunEvent, Step
from contracts.runs.inbox import CallFinished
from contracts.runs.payload import TaskFindings
from contracts.runs.requests import RunRequested
from contracts.wire.base import MAX_EVENT_INLINE_BYTES, MAX_INLINE_BYTES
from contracts.wire.records import Record
from services.messaging.connection import Bus
from services.planner.conversation.encoding import middle_cut
from services.planner.run.ending import terminal
from services.planner.sessions.tasks.reports import MAX_ANSWERED_BYTES, REPORTED_TASKS, REPORTED_WHOLE
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound
from services.shared.redaction.json_values import placeholder, placeholder_of, wire_size
from services.shared.redaction.separation import ROOT
from services.shared.redaction.stored_values import as_reference, heavy_paths, to_blob
from services.shared.runs.last_record import last_record
from services.shared.sessions.state import Session

logger = structlog.get_logger(__name__)
Artifacts = dict[str, dict[str, Any]]

STORE_TIMEOUT_S = 5.0


class Offloader:
    """Stores artifacts that are too large for a run's last record."""

    def __init__(self, bus: Bus) -> None:
        self._client = ArtifactClient(bus, patience_s=STORE_TIMEOUT_S)

    async def offloaded(self, record: Record, tenant: str, run: str, session: str | None) -> Record:
        """Return the record with references for its largest values, or the same record if it is small enough."""
        events = [await self._smaller(event, tenant, run, session) for event in record.events]
        if any(new is not old for new, old in zip(events, record.events, strict=True)):
            record = record.model_copy(update={"events": events})
        end = record.events[-1] if record.events else None
        if not isinstance(end, Done | Error | Cancelled):
            return record
        artifacts = end.artifacts if isinstance(end, Done) else end.payload.artifacts
        if not artifacts or wire_size(artifacts) <= MAX_EVENT_INLINE_BYTES:
            return record
        smaller = terminal.with_payload(end, {"artifacts": await self.stored(artifacts, tenant, run, session)})
        return record.model_copy(update={"events": [*record.events[:-1], smaller]})

    async def _smaller(self, event: RunEvent, *place: Any) -> RunEvent:
        """Return an event without a value that is too large for a log, or is stored there already."""
        match event:
            case Paused(revision=1, arguments=dict() as arguments) if wire_size(arguments) > MAX_INLINE_BYTES:
                tool = event.tool or ""
                stored = (await self.stored({tool: arguments}, *place))[tool]
                fits = wire_size(stored) <= MAX_EVENT_INLINE_BYTES
                return event.model_copy(update={"arguments": stored if fits else None})
            case Step() if wire_size(event.said) > MAX_INLINE_BYTES:
                said = (await self.stored({SAID: {"": event.said}}, *place))[SAID][""]
                return event.model_copy(update={"said": as_reference(said) or said})
            case PayloadProposed() if wire_size(event.data) > MAX_INLINE_BYTES:
                # Data of a model may look like a reference, a list of one does not.
                ref = as_reference((await self.stored({"data": {"": [event.data]}}, *place))["data"][""])
                return event if ref is None else event.model_copy(update={"data": {}, "stored": ref})
            case _:
                return event

    async def filled(self, record: Record, tenant: str) -> Record:
        """Return the record with the texts of its parts in the place of their references.

        A text that somebody has deleted stays away. Raises ArtifactFailed while the store is unavailable: without the
        texts the record cannot be folded.
        """
        if not any(isinstance(event, Step) and isinstance(event.said, ArtifactRef) for event in record.events):
            return record
        events: list[Any] = []
        for event in record.events:
            said = event.said if isinstance(event, Step) else ""
            if isinstance(said, ArtifactRef):
                with suppress(ArtifactNotFound):
                    _, body = await self._client.read(tenant, said.artifact_id, limit=said.size)
                    event = event.model_copy(update={"said": body.decode("utf-8", "surrogatepass")})  # noqa: PLW2901
            events.append(event)
        return record.model_copy(update={"events": events})

    async def stored(self, artifacts: Artifacts, tenant: str, run: str, session: str | None) -> Artifacts:
        """Return the artifacts with references for the largest values; those that cannot be stored stay."""
        found = ((tool, path, value) for tool, fields in artifacts.items() for path, value in fields.items())
        places = {f"{tool}\n{path}": (tool, path) for tool, path, value in found if as_reference(value) is None}
        largest = sorted(heavy_paths({place: artifacts[tool][path] for place, (tool, path) in places.items()}))
        offloaded = {tool: dict(fields) for tool, fields in artifacts.items()}

        async def put(place: str) -> None:
            tool, path = places[place]
            blob = to_blob(artifacts[tool][path])
            name = hashlib.sha256(f"{tenant}\n{run}\n{place}\n".encode(errors="surrogatepass") + blob.body).hexdigest()[
                :32
            ]
            ref = await self._client.put(
                tenant,
                blob.body,
                session=session,
                run=run,
                namespace=tool.partition("#")[0],
                mime_type=blob.mime_type,
                json_type=blob.json_type,
                items=blob.items,
                artifact_id=name,
            )
            offloaded[tool][path] = ref.model_dump(mode="json", exclude_none=True)

        for error in await asyncio.gather(*map(put, largest), return_exceptions=True):
            if isinstance(error, ArtifactFailed):
                logger.warning("artifact_kept_inline", reason=error.reason)
            elif error is not None:
                raise error
        return offloaded


class TaskResults:
    """Reads the ends of tasks, over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._offloader = Offloader(bus)

    async def of_call(
        self, tenant: str, session: Session, run: str, finished: CallFinished, tasks: Collection[str]
    ) -> CallFinished:
        """Return the outcome of a call about tasks with what these have made."""
        if not tasks or not isinstance(finished.observation, dict):
            return finished
        said = dict(finished.observation)
        key = next((key for key in ("results", "tasks") if isinstance(said.get(key), list)), None)
        shown, found = await self._completed(tenant, session.session_id, run, said[key] if key else [said], tasks)
        said = said | {key: shown} if key else shown[0]
        return finished.model_copy(update={"observation": said, "of_tasks": found})

    async def of_report(self, request: RunRequested, tasks: Collection[str]) -> RunRequested:
        """Return the request of a report with what the tasks have made."""
        shown = request.llm_context[REPORTED_TASKS]
        shown, found = await self._completed(request.tenant, request.session_id, request.run_id, shown, tasks)
        context = request.llm_context | {REPORTED_TASKS: shown}
        context |= {REPORTED_WHOLE: {"artifact_id": found.whole}} if found is not None and found.whole else {}
        return request.model_copy(update={"llm_context": context, "of_tasks": found})

    async def _completed(
        self, tenant: str, session: str | None, run: str, shown: list[dict[str, Any]], tasks: Collection[str]
    ) -> tuple[list[dict[str, Any]], TaskFindings | None]:
        """Return the tasks as the model is shown them, and what belongs to the payload; None: nothing."""
        ids = [each["task_id"] for each in shown if each["task_id"] in tasks]
        last = await asyncio.gather(*(last_record(self._bus, tenant, task) for task in ids))
        logged = [Record.model_validate_json(each.data).events[-1] if each and each.data else None for each in last]
        # Without tasks of which the log was purged, or that have no result.
        ends = {task: end for task, end in zip(ids, logged, strict=True) if isinstance(end, Done)}
        whole = [{**each, "result": end.raw_answer} for each in shown if (end := ends.get(each["task_id"]))]
        keyed = {f"{tool}#{task}": fields for task, end in ends.items() for tool, fields in end.artifacts.items()}
        types = {f"{tool}#{task}": found for task, end in ends.items() for tool, found in end.artifact_types.items()}
        is_large = wire_size(whole) > MAX_INLINE_BYTES
        if is_large:
            keyed = {REPORTED_WHOLE: {ROOT: whole}, **keyed}
        stored = await self._offloader.stored(keyed, tenant, run, session)
        ref = as_reference(stored.pop(REPORTED_WHOLE)[ROOT]) if is_large else None
        share = MAX_ANSWERED_BYTES // max(1, len(whole)) if is_large else MAX_INLINE_BYTES

        def completed(each: Mapping[str, Any]) -> dict[str, Any]:
            end = ends.get(each["task_id"])
            if end is None:
                return dict(each)
            made = {
                tool: {path: _seen(value) for path, value in found.items()} for tool, found in end.artifacts.items()
            }
            return {**each, "result": middle_cut(end.raw_answer, share), **({"artifacts": made} if made else {})}

        sources = [source for end in ends.values() for source in end.sources]
        found = TaskFindings(
            artifacts=stored, artifact_types=types, sources=sources, whole=ref.artifact_id if ref is not None else None
        )
        return [completed(each) for each in shown], found if found != TaskFindings() else None


def _seen(value: Any) -> Any:
    """Return an artifact as a model sees it."""
    if (ref := as_reference(value)) is None:
        return placeholder(value)
    return {"observation": placeholder_of(ref), "artifact_id": ref.artifact_id}
