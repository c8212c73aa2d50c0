"""Decides what happens to the proposals of a session. Pure.

| what happens | pending | applying |
| --- | --- | --- |
| a new message | superseded | applying |
| a new message with `keep_proposal` | pending | applying |
| a later turn ends with a proposal | superseded | applying |
| apply | applying | applying |
| dismiss | dismissed | applying |
| the apply's run ends | pending | applied, pending, superseded |

The run of an apply that failed as a whole gives the proposal back, unless another one is pending by then. No other
state changes.
"""

from dataclasses import dataclass

from contracts.runs.requests import RunRequested
from contracts.sessions import proposals as facts
from contracts.sessions.records import RunEnded
from services.shared.runs.causes import CAUSES
from services.shared.sessions.state import Session


@dataclass(frozen=True, slots=True)
class RequestApply:
    """Request the run that applies a proposal."""

    request: RunRequested


def superseded(session: Session, request: RunRequested) -> list[facts.ProposalEvent]:
    """Return what a new message means for the pending proposal."""
    pending = session.pending_proposal
    if pending is None or request.keep_proposal or CAUSES[request.cause].gives_way:
        return []
    return [facts.ProposalSuperseded(proposal_id=pending, by=request.run_id)]


def turn_ended(session: Session, run: RunEnded) -> list[facts.ProposalEvent]:
    """Return what the end of a turn means: the last proposal of an answer is pending."""
    found = [each for each in run.payloads if each.kind in facts.APPLICABLE]
    if run.outcome != "done" or not found:
        return []
    before, fields = session.pending_proposal, {"kind", "summary", "table_id"}
    pending = facts.ProposalPending(
        proposal_id=found[-1].payload_id, run=run.run, **found[-1].model_dump(include=fields)
    )
    if before is None:
        return [pending]
    return [facts.ProposalSuperseded(proposal_id=before, by=run.run), pending]


def apply_ended(
    session: Session, run: str | None, code: str, report: facts.ProposalReport | None = None
) -> list[facts.ProposalEvent]:
    """Return what the end of a run means that may be an apply. `code`: how it ended, where it has no report."""
    applying = [each for each in session.proposals.values() if each.state == "applying" and each.job == run]
    if not applying or run is None:
        return []
    proposal_id = applying[0].payload_id
    if report is not None:
        return [facts.ProposalApplied(proposal_id=proposal_id, job=run, report=report)]
    other = session.pending_proposal
    if other is not None:
        return [facts.ProposalSuperseded(proposal_id=proposal_id, by=session.proposals[other].run)]
    return [facts.ProposalReleased(proposal_id=proposal_id, job=run, code=code)]


def controlled(session: Session, message: facts.SessionProposalControl) -> list[facts.ProposalEvent]:
    """Return what a person's decision leads to."""
    proposal = session.proposals.get(message.proposal_id)
    if session.is_deleting or proposal is None or proposal.state != "pending":
        return []
    if message.apply is not None and proposal.job == message.apply.job:
        return []  # Delivered again: this apply has failed already.
    if message.apply is None:
        return [facts.ProposalDismissed(proposal_id=message.proposal_id, by=message.by)]
    return [message.apply]


def commands(session: Session, message: facts.SessionProposalControl) -> list[RequestApply]:
    """Return what follows from the state after a person's decision."""
    proposal = session.proposals.get(message.proposal_id)
    if proposal is None or proposal.state != "applying" or proposal.applying != message.apply:
        return []
    return [RequestApply(message.request)] if message.request is not None else []
