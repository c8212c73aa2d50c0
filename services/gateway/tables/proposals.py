"""Proposals over HTTP: show one, and what would come of it now; apply it, or some of it; dismiss it.

Rule 1: the event `payload` of its turn is what was proposed, and the log of the session says what became of it. What
cannot be read of the table now is left out, and the proposal is shown still.
Rule 2: the log of the session decides, not this gateway: an apply and a new message are both sent, and the first record
counts.
Rule 3: an apply is a run of the session, requested by a planner once the session has recorded it. A repeated request
finds the same run, by its id.
"""

import asyncio
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response

from contracts.runs.events import PayloadProposed, RunStarted
from contracts.runs.payload import CALL_RESULT
from contracts.runs.requests import CallInput
from contracts.sessions import proposals as facts
from contracts.wire import keys, subjects
from contracts.wire.base import MAX_HTTP_INLINE_BYTES
from contracts.wire.faults import Fault
from contracts.wire.names import InvalidName, apply_run_id, checked_id
from services.gateway import errors
from services.gateway.auth.caller import Caller
from services.gateway.catalogue import WAIT_S
from services.gateway.edge.request_body import BodyLimit, read_body, read_json
from services.gateway.edge.routing import RequestCaller, body_of, json_response, needs, new_router, request_ids
from services.gateway.parts import GatewayParts, Parts
from services.gateway.runs.accept import call_request, encoded
from services.gateway.runs.control import STOPPING
from services.gateway.runs.reader import StoredRun
from services.gateway.sessions.routes import tell_session
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
        raise errors.NotFound from error
    for key in await parts.entries.keys(pattern):
        run = await parts.runs.get(caller, keys.proposal_entry.parsed(key)[2])
        of_run = await parts.runs.facts_of(caller.tenant, run.run_id)
        of_id = [each for each in of_run if isinstance(each, PayloadProposed) and each.payload_id == proposal_id]
        if not of_id or of_id[0].kind not in facts.APPLICABLE:
            continue
        data = await _data(parts, caller, of_id[0])
        return Found(run, of_id[0], data, await _proposal(parts, caller, run, of_id[0]))
    raise errors.NotFound


async def _data(parts: Parts, caller: Caller, event: PayloadProposed) -> dict[str, Any]:
    if event.stored is None:
        return event.data
    try:
        _, body = await parts.artifacts.read(caller.tenant, event.stored.artifact_id, limit=MAX_HTTP_INLINE_BYTES)
        found: dict[str, Any] = exact_json.loads(body)[0]
    except (ArtifactFailed, ValueError) as error:
        raise errors.ProposalGone from error
    return found


async def with_session(parts: Parts, caller: Caller, found: Found) -> Found:
    """Return a proposal with what its session knows of it now. Raises ProposalGone."""
    return replace(found, proposal=await _proposal(parts, caller, found.run, found.event))


async def _proposal(parts: Parts, caller: Caller, run: StoredRun, event: PayloadProposed) -> Proposal:
    session = await parts.sessions.find(caller.tenant, run.session_id, is_current=True)
    if session is not None and (known := session.proposals.get(event.payload_id)) is not None:
        return known
    if session is not None and run.has_ended and not session.is_open(run.run_id):
        raise errors.ProposalGone
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
    except (errors.NotAllowed, errors.TryAgain):
        return []
    except errors.ToolFailed as refused:
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
    except (errors.NotAllowed, errors.ToolFailed, errors.TryAgain):
        return None


router = new_router("proposals")
CHANGES: dict[str, Any] = {
    "dependencies": [needs("apply")],
    "response_model": facts.ProposalView,
    "responses": {202: {"model": facts.ProposalView, "description": f"It is not over after {WAIT_S:g} s."}},
}


@router.get("/v1/proposals/{proposal_id}", response_model=facts.ProposalView)
async def get_proposal(proposal_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Return a proposal: its state, how it is drawn, and of each operation what would come, or came, of it."""
    found = await find(parts, caller, proposal_id)
    return await shown(parts, request, caller, found)


@router.post(
    "/v1/proposals/{proposal_id}/apply",
    **CHANGES,
    openapi_extra=body_of(facts.ProposalInput, traced=True, optional=True),
)
async def apply_proposal(proposal_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Apply a proposal, or some of its operations, and return what came of each: 202 if that takes longer than 30 s.

    A repeated request with the same choice changes nothing twice, and returns the same. 409: another choice is being
    applied, or the proposal is no longer pending.
    """
    given = await read_json(request, facts.ProposalInput, parts.settings.max_body_bytes, optional=True)
    found = await find(parts, caller, proposal_id)
    return await _decided(parts, request, caller, found, given)


@router.post("/v1/proposals/{proposal_id}/dismiss", **CHANGES)
async def dismiss_proposal(proposal_id: str, parts: GatewayParts, request: Request, caller: RequestCaller) -> Response:
    """Dismiss a proposal: nothing is changed, and the next turn knows."""
    await read_body(request, BodyLimit(parts.settings.max_body_bytes))
    found = await find(parts, caller, proposal_id)
    return await _decided(parts, request, caller, found, None)


async def _decided(
    parts: Parts, request: Request, caller: Caller, found: Found, given: facts.ProposalInput | None
) -> Response:
    """Have a proposal applied as `given`, or dismissed, and return it as it is then."""
    caller.check_change(found.run.request())
    if not found.run.has_ended:
        raise errors.RefusedByPlanner(
            "proposal_open", "The turn that makes this proposal has not ended.", state="pending"
        )
    if given is not None:
        caller.check_tool(facts.APPLY_TOOL, "tool")
        await parts.budgets.check(caller)
    choice = _choice(found, given) if given is not None else None
    deciding = _decide(parts, request, caller, found, choice)
    with parts.streams.counted(caller.tenant):
        found, is_over = await parts.streams.while_connected(request.receive, deciding, STOPPING, caller)
    return await shown(parts, request, caller, found, 200 if is_over else 202)


def _choice(found: Found, given: facts.ProposalInput) -> facts.ProposalApplying:
    """Return what is applied. Raises InvalidInput."""
    every = [*range(len(found.operations))]
    chosen = every if given.operations is None else sorted({*given.operations})
    if not {*chosen} <= {*every}:
        raise errors.InvalidInput("operations", f"the proposal has operations 0 to {len(every) - 1}")
    if facts.APPLICABLE[found.event.kind] == "schema" and chosen != every:
        raise errors.InvalidInput("operations", "a change of columns is applied as a whole: leave it out")
    return facts.ProposalApplying(
        proposal_id=found.event.payload_id,
        operations=chosen,
        of=len(every),
        with_samples=given.include_sample_rows,
        job="",
        by="",
    )


async def _decide(
    parts: Parts, request: Request, caller: Caller, found: Found, choice: facts.ProposalApplying | None
) -> tuple[Found, bool]:
    """Send a decision if the proposal is pending, and wait for what comes of it.

    Return the proposal, and whether that is over. Raises RefusedByPlanner, ToolFailed and TryAgain.
    """
    live = subjects.live_session(caller.tenant, keys.session_key(found.run.session_id))
    attempt: int | None = None
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                async with parts.session_answers.expected(live, found.event.payload_id) as changed:
                    found = await with_session(parts, caller, found)
                    if _is_over(found, choice, attempt):
                        return found, True
                    if attempt is None and found.state == "pending":
                        attempt = found.proposal.attempts
                        await _send(parts, request, caller, found, choice)
                    await changed
    except TimeoutError:
        return await with_session(parts, caller, found), False


def _is_over(found: Found, choice: facts.ProposalApplying | None, attempt: int | None) -> bool:
    """Whether a decision has been carried out. Raises RefusedByPlanner if another one was, and ToolFailed."""
    proposal, state = found.proposal, found.state
    if state == "pending":
        if attempt is not None and proposal.attempts > attempt:
            reason = f"the proposal was not applied ({proposal.code}), and is pending again"
            raise errors.ToolFailed(Fault(code="tool_error", reason=reason, tool_code=proposal.code))
        return False
    newest = proposal.applying if state in {"applying", "applied"} else None
    if choice is None and state == "dismissed":
        return True
    if choice is not None and newest is not None and _same(newest) == _same(choice):
        return state == "applied"
    texts = {"applying": "another choice of it is being applied", "applied": "another choice of it was applied"}
    code = "proposal_applying" if state == "applying" else "proposal_closed"
    raise errors.RefusedByPlanner(
        code, f"The proposal is {state}: {texts.get(state, 'nothing can be applied')}.", state=state
    )


def _same(choice: facts.ProposalApplying) -> tuple[list[int], bool]:
    return choice.operations, choice.with_samples


async def _send(
    parts: Parts, request: Request, caller: Caller, found: Found, choice: facts.ProposalApplying | None
) -> None:
    """Send a decision to the session, with the run that it leads to. Raises NotAllowed, TooManyRuns and TryAgain."""
    session_id, turn = found.run.session_id, found.run.request()
    message = facts.SessionProposalControl(session_id=session_id, proposal_id=found.event.payload_id, by=caller.key_id)
    name = f"proposal-{message.proposal_id}"
    if choice is None:
        await tell_session(parts, caller, session_id, name, message)
        return
    job = apply_run_id(found.event.payload_id, repr(_same(choice)), found.proposal.attempts)
    arguments = found.arguments(choice.operations, with_samples=choice.with_samples)
    asked = CallInput(args=arguments, agent=turn.agent if turn is not None else "default")
    requested = call_request(caller, job, facts.APPLY_TOOL, asked, request_ids(request))
    whose = {"session_id": session_id, "user_id": turn.user_id if turn is not None else None}
    applying = choice.model_copy(update={"job": job, "by": caller.key_id})
    message = message.model_copy(update={"apply": applying, "request": requested.model_copy(update=whose)})
    encoded(requested)
    async with parts.quota.admitted(caller, job):
        await tell_session(parts, caller, session_id, name, message)
