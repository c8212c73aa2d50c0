"""Proposals over HTTP: show one, and what would come of it now; apply it, or some of it; dismiss it.

Rule 1: the log of the session decides, not this gateway: an apply and a new message are both sent, and the first record
counts.
Rule 2: an apply is a run of the session, requested by a planner once the session has recorded it. A repeated request
finds the same run, by its id.
"""

import asyncio
from typing import Any

from fastapi import Request, Response

from contracts.runs.requests import CallInput
from contracts.sessions import proposals as facts
from contracts.wire import keys, subjects
from contracts.wire.faults import Fault
from contracts.wire.names import apply_run_id
from services.gateway.auth.caller import Caller
from services.gateway.edge.request_body import BodyLimit, read_body, read_json
from services.gateway.edge.routing import RequestCaller, body_of, needs, new_router, request_ids
from services.gateway.errors import InvalidInput, RefusedByPlanner, ToolFailed
from services.gateway.parts import GatewayParts, Parts
from services.gateway.runs.calls import WAIT_S
from services.gateway.runs.control import STOPPING
from services.gateway.runs.run_request import call_request, encoded
from services.gateway.sessions.routes import tell_session

from .proposal_reading import Found, find, shown, with_session

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
        raise RefusedByPlanner("proposal_open", "The turn that makes this proposal has not ended.", state="pending")
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
        raise InvalidInput("operations", f"the proposal has operations 0 to {len(every) - 1}")
    if facts.APPLICABLE[found.event.kind] == "schema" and chosen != every:
        raise InvalidInput("operations", "a change of columns is applied as a whole: leave it out")
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
            raise ToolFailed(Fault(code="tool_error", reason=reason, tool_code=proposal.code))
        return False
    newest = proposal.applying if state in {"applying", "applied"} else None
    if choice is None and state == "dismissed":
        return True
    if choice is not None and newest is not None and _same(newest) == _same(choice):
        return state == "applied"
    texts = {"applying": "another choice of it is being applied", "applied": "another choice of it was applied"}
    code = "proposal_applying" if state == "applying" else "proposal_closed"
    raise RefusedByPlanner(code, f"The proposal is {state}: {texts.get(state, 'nothing can be applied')}.", state=state)


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
