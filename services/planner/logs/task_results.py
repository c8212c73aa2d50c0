"""What the runs of tasks have made, for a run that reads their results: whole answers, artifacts and sources.

The log of the session holds the beginning of each answer. The rest is in the newest record of each task's run.

Rule 1: only tasks that are named are read: their results are no longer held.
Rule 2: artifacts and sources go to the payload of the run. Its model reads placeholders, with ids of what is stored.
Rule 3: results above 32 KiB together are stored as an artifact of the run, which its model may read; beginning and end
of each are shown.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from contracts.runs.events import Done
from contracts.runs.inbox import CallFinished
from contracts.runs.payload import TaskFindings
from contracts.runs.requests import RunRequested
from contracts.wire.limits import MAX_INLINE_BYTES
from contracts.wire.records import Record
from services.messaging.connection import Bus
from services.planner.conversation.encoding import middle_cut
from services.planner.logs.offload import Offloader
from services.planner.sessions.tasks.answers import MAX_ANSWERED_BYTES
from services.planner.sessions.tasks.reports import REPORTED_TASKS, REPORTED_WHOLE
from services.shared.redaction.json_values import placeholder, placeholder_of, wire_size
from services.shared.redaction.stored_values import as_reference
from services.shared.runs.last_record import last_record
from services.shared.sessions.state import Session

WHOLE = "background_results", "$"
"""Where the results in full stand among the artifacts that are stored."""


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
            keyed = {WHOLE[0]: {WHOLE[1]: whole}, **keyed}
        stored = await self._offloader.stored(keyed, tenant, run, session)
        ref = as_reference(stored.pop(WHOLE[0])[WHOLE[1]]) if is_large else None
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
