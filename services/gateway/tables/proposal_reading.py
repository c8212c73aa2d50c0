"""Reads a proposal and shows it: its state, what would come, or came, of each operation, and how it is drawn.

Rule: the event `payload` of its turn is what was proposed, and the log of the session says what became of it. What
cannot be read of the table now is left out, and the proposal is shown still.
"""

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response

from contracts.runs.events import PayloadProposed, RunStarted
from contracts.runs.payload import CALL_RESULT
from contracts.sessions import proposals as facts
from contracts.wire import keys
from contracts.wire.limits import MAX_HTTP_INLINE_BYTES
from contracts.wire.names import InvalidName, checked_id
from services.gateway.auth.caller import Caller
from services.gateway.edge.answers import json_response
from services.gateway.errors import NotAllowed, NotFound, ProposalGone, ToolFailed, TryAgain
from services.gateway.parts import Parts
from services.gateway.runs.reader import StoredRun
from services.runtime import exact_json
from services.shared.artifacts.errors import ArtifactFailed
from services.shared.sessions.proposals import Proposal, outcomes_of

from .proposal_view import render_data, render_outcome, render_schema
from .routes import read_tool

ALL_OPERATIONS = "all_operations"
"""The artifact of `apply_proposal` where its result lists the first refused operations alone."""
MAX_ROWS = 500
"""Rows that a proposal changes, as they are shown with it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A proposal as it is stored. `proposal`: what the session knows of it."""

    run: StoredRun
    event: PayloadProposed
    data: dict[str, Any]
    proposal: Proposal

    @property
    def operations(self) -> list[dict[str, Any]]:
        """Return all of them by their numbers; what is no object is an empty one."""
        found = self.data.get("operations")
        return [each if isinstance(each, dict) else {} for each in found] if isinstance(found, list) else []

    def names(self) -> dict[str, str]:
        """Return the names of columns by their ids, as the model saw them: a column may be gone since."""
        started = [event for record in (self.run.first, self.run.started) if record for event in record.events]
        views = [event.page_view for event in started if isinstance(event, RunStarted) and event.page_view]
        columns = [each for view in views for each in view.columns or () if each.get("id")]
        return {str(each["id"]): str(each.get("name", each["id"])) for each in columns}

    @property
    def state(self) -> facts.ProposalState:
        """Its state; without one it is no longer the proposal of its turn."""
        return self.proposal.state or "superseded"

    def arguments(self, numbers: list[int], *, with_samples: bool) -> dict[str, Any]:
        """Return the arguments of the tool that applies or checks these operations."""
        kind, event = facts.APPLICABLE[self.event.kind], self.event
        chosen = [{**self.operations[number], "index": number} for number in numbers]
        of_kind: dict[str, Any] = {"operations": chosen}
        if kind == "schema":
            names = ("mode", "table_name", "table_description", "sample_rows")
            of_kind = {"operations": self.operations, "include_sample_rows": with_samples}
            of_kind |= {name: self.data[name] for name in names if name in self.data}
        is_new = kind == "schema" and self.data.get("mode") == "create"
        place = {"table_id": None if is_new else event.table_id, "base_version": event.base_version}
        return {"proposal_id": event.payload_id, "kind": kind, **place, **of_kind}


async def find(parts: Parts, caller: Caller, proposal_id: str) -> Found:
    """Return a proposal that the caller may see. Raises NotFound and ProposalGone."""
    try:
        pattern = keys.proposal_entry.pattern(tenant=caller.tenant, proposal=checked_id(proposal_id))
    except InvalidName as error:
        raise NotFound from error
    for key in await parts.entries.keys(pattern):
        run = await parts.runs.get(caller, keys.proposal_entry.parsed(key)[2])
        of_run = await parts.runs.facts_of(caller.tenant, run.run_id)
        of_id = [each for each in of_run if isinstance(each, PayloadProposed) and each.payload_id == proposal_id]
        if not of_id or of_id[0].kind not in facts.APPLICABLE:
            continue
        data = await _data(parts, caller, of_id[0])
        return Found(run, of_id[0], data, await _proposal(parts, caller, run, of_id[0]))
    raise NotFound


async def _data(parts: Parts, caller: Caller, event: PayloadProposed) -> dict[str, Any]:
    if event.stored is None:
        return event.data
    try:
        _, body = await parts.artifacts.read(caller.tenant, event.stored.artifact_id, limit=MAX_HTTP_INLINE_BYTES)
        found: dict[str, Any] = exact_json.loads(body)[0]
    except (ArtifactFailed, ValueError) as error:
        raise ProposalGone from error
    return found


async def with_session(parts: Parts, caller: Caller, found: Found) -> Found:
    """Return a proposal with what its session knows of it now. Raises ProposalGone."""
    return replace(found, proposal=await _proposal(parts, caller, found.run, found.event))


async def _proposal(parts: Parts, caller: Caller, run: StoredRun, event: PayloadProposed) -> Proposal:
    session = await parts.sessions.find(caller.tenant, run.session_id, is_current=True)
    if session is not None and (known := session.proposals.get(event.payload_id)) is not None:
        return known
    if session is not None and run.has_ended and not session.is_open(run.run_id):
        raise ProposalGone
    # The session has not heard of the end of the turn yet.
    return Proposal(
        payload_id=event.payload_id, run=run.run_id, kind=event.kind, summary=event.summary, state="pending"
    )


async def shown(parts: Parts, request: Request, caller: Caller, found: Found, status: int = 200) -> Response:
    """Return the answer that shows a proposal as it is."""
    event, proposal, state = found.event, found.proposal, found.state
    applying = proposal.applying if state != "pending" else None
    verdicts: list[dict[str, Any]] = []
    if state == "pending":
        verdicts = await _expected(parts, request, caller, found)
    elif state == "applied" and proposal.job is not None:
        verdicts = await _outcomes(parts, caller, proposal.job)
    view = facts.ProposalView(
        proposal_id=event.payload_id,
        session_id=found.run.session_id,
        run_id=found.run.run_id,
        kind=event.kind,
        summary=event.summary,
        state=state,
        data=found.data,
        table_id=event.table_id,
        base_version=event.base_version,
        operations=applying.operations if applying is not None else [],
        job=proposal.job,
        verdicts=verdicts,
        report=proposal.report,
        code=proposal.code,
        superseded_by=proposal.superseded_by,
        decided_by=proposal.decided_by,
        decided_at=proposal.decided_at,
        view=await _view(parts, request, caller, found, verdicts),
    )
    return await json_response(view, request.headers, status=status)


async def _expected(parts: Parts, request: Request, caller: Caller, found: Found) -> list[dict[str, Any]]:
    """Return what would come of each operation now; nothing, if the tables do not say."""
    numbers = [*range(len(found.operations))]
    try:
        arguments = found.arguments(numbers, with_samples=False)
        return outcomes_of(await read_tool(parts, request, caller, facts.CHECK_TOOL, arguments))
    except (NotAllowed, TryAgain):
        return []
    except ToolFailed as refused:
        if refused.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return []
        why = {"status": "failed", "code": refused.code, "reason": refused.detail}  # The table is gone, for instance.
        return [{"index": number, **why} for number in numbers]


async def _outcomes(parts: Parts, caller: Caller, job: str) -> list[dict[str, Any]]:
    """Return what came of each operation that was applied; nothing, if the run is not stored any more."""
    run = await parts.runs.find(caller.tenant, job)
    payload = run.status().payload if run is not None else None
    if payload is None:
        return []
    result = payload.extra.get(CALL_RESULT)
    if isinstance(result, dict) and result.get(ALL_OPERATIONS) is not None:
        of_tool = (await parts.inliner.payload(caller.tenant, payload)).artifacts.get(facts.APPLY_TOOL, {})
        result = {"operations": of_tool.get(ALL_OPERATIONS)}
    return outcomes_of(result)


async def _view(
    parts: Parts, request: Request, caller: Caller, found: Found, verdicts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return how the proposal is drawn: over the table as it is, or what came of it."""
    state, proposal, operations, names = found.state, found.proposal, found.operations, found.names()
    if state not in {"pending", "applying"}:
        report = proposal.report if state == "applied" else None
        outcome = None if report is None else {"operations": verdicts, "applied": report.applied}
        return render_outcome(len(operations), outcome) | {"names": names}
    of_table = {"table_id": found.event.table_id}
    table = await _read_or_none(parts, request, caller, "describe_table", of_table) if found.event.table_id else None
    columns = table["columns"] if table is not None else []
    names |= {each["column_id"]: each["name"] for each in columns}
    if facts.APPLICABLE[found.event.kind] == "schema":
        ids = [] if found.data.get("mode") == "create" else [each["column_id"] for each in columns]
        return render_schema(ids, {**found.data, "operations": operations}) | {"names": names}
    changed = sorted({each["row_id"] for each in operations if isinstance(each.get("row_id"), int)})[:MAX_ROWS]
    query = {**of_table, "filters": [{"column": "row_id", "op": "in", "value": changed}], "limit": MAX_ROWS}
    page = await _read_or_none(parts, request, caller, "query_rows", query) if changed else None
    ids_of = {each["name"]: each["column_id"] for each in columns}
    rows = [
        {"id": row["row_id"], "data": {ids_of.get(name, name): cell for name, cell in row["cells"].items()}}
        for row in (page["rows"] if page is not None else ())
    ]
    every = range(len(operations))
    chosen = proposal.applying.operations if proposal.applying is not None and state == "applying" else every
    return render_data(
        rows,
        operations,
        checked=[number in chosen for number in every],
        reasons={each["index"]: each["reason"] for each in verdicts if each["status"] == "failed"},
        is_applying=state == "applying",
    ) | {"names": names}


async def _read_or_none(parts: Parts, request: Request, caller: Caller, tool: str, args: dict[str, Any]) -> Any:
    """Return what a tool of the tables returns; None if it cannot be read now, so that the proposal is shown still."""
    try:
        return await read_tool(parts, request, caller, tool, args)
    except (NotAllowed, ToolFailed, TryAgain):
        return None
