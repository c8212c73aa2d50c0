"""The proposals of a session: their states, which events lead from one to the next, and what the next turn reads.

Pure. The newest 50 payloads are kept; the data of each is in the log of its run.
"""

import re
from collections.abc import Iterable
from typing import Any

from contracts.sessions import proposals as facts
from contracts.sessions.proposals import ProposalState
from contracts.wire.base import Message
from services.shared.runs.pages.page_types import one_line

MAX_KEPT = 50
_OF_OPERATION = re.compile(r"@operations\[([0-9]{1,9})\]")
TRANSITIONS: dict[str, tuple[frozenset[ProposalState | None], ProposalState]] = {
    "proposal_pending": (frozenset({None}), "pending"),
    "proposal_applying": (frozenset({"pending"}), "applying"),
    "proposal_applied": (frozenset({"applying"}), "applied"),
    "proposal_released": (frozenset({"applying"}), "pending"),
    "proposal_dismissed": (frozenset({"pending"}), "dismissed"),
    "proposal_superseded": (frozenset({"pending", "applying"}), "superseded"),
}
"""Event -> the states in which it counts, and the one that it leads to. In any other state it changes nothing."""


class Proposal(Message):
    """A payload of the session. `state`: None for one that is no proposal, or no longer the newest of its turn."""

    payload_id: str
    run: str
    kind: str
    summary: str
    table_id: str | None = None
    base_version: int | None = None
    state: ProposalState | None = None
    changed_seq: int = 0
    """Sequence of the record that changed its state last."""
    attempts: int = 0
    """Applies that have failed as a whole."""
    applying: facts.ProposalApplying | None = None
    """The newest apply."""
    report: facts.ProposalReport | None = None
    code: str | None = None
    """Why the newest apply failed as a whole."""
    superseded_by: str | None = None
    decided_by: str = ""
    """Id of the API key that applied or dismissed it last."""
    decided_at: int | None = None
    """When, Unix ms."""

    @property
    def job(self) -> str | None:
        """The run of the newest apply."""
        return self.applying.job if self.applying is not None else None

    def entry(self, state: ProposalState) -> facts.ProposalEntry:
        """How lists show it, where it has a state."""
        given = self.model_dump(include={"kind", "summary", "table_id"})
        return facts.ProposalEntry(proposal_id=self.payload_id, run_id=self.run, state=state, **given)


Kept = dict[str, Proposal]
"""By id, the oldest first."""


def with_payloads(kept: Kept, run: str, payloads: Iterable[facts.PayloadKept]) -> Kept:
    """Add the payloads of a turn that has ended."""
    kept = kept | {each.payload_id: Proposal(run=run, **each.model_dump()) for each in payloads}
    return dict([*kept.items()][-MAX_KEPT:])


def fold(kept: Kept, event: facts.ProposalEvent, seq: int, at: int) -> Kept:
    """Return the proposals after an event of the record `seq`, which was written `at`, Unix ms."""
    proposal, (before, state) = kept.get(event.proposal_id), TRANSITIONS[event.type]
    if proposal is None or proposal.state not in before:
        return kept
    changes: dict[str, Any] = {"state": state, "changed_seq": seq}
    if isinstance(event, facts.ProposalApplying | facts.ProposalDismissed):
        changes |= {"decided_by": event.by, "decided_at": at}
    match event:
        case facts.ProposalApplying():
            changes |= {"applying": event, "code": None}
        case facts.ProposalApplied(report=report):
            changes["report"] = report
        case facts.ProposalReleased(code=code):
            changes |= {"code": code, "attempts": proposal.attempts + 1}
        case facts.ProposalSuperseded(by=run):
            changes["superseded_by"] = run
    return kept | {event.proposal_id: proposal.model_copy(update=changes)}


def notes(kept: Kept, since: int) -> list[str]:
    """Say what has happened to proposals in the records after `since`, and which one still waits for a decision."""
    changed = [each for each in kept.values() if each.state is not None]
    return [_note(each) for each in changed if each.changed_seq > since or each.state in {"pending", "applying"}]


def _note(proposal: Proposal) -> str:
    what = f"Proposal {proposal.payload_id} ({proposal.summary})"
    report, applying = proposal.report, proposal.applying
    unchanged = "nothing was changed" if applying is None else "an apply had failed, and may have changed a part"
    match proposal.state:
        case "applied" if report is not None and applying is not None:
            text = f"{what}: the user chose {len(applying.operations)} of {applying.of} operations; {report.applied} "
            text += f"were applied, {report.failed} failed."
            if report.table_id is not None:
                text += f" The table is {report.table_id}, now at version {report.version}."
            refused = [f"{each.index}: {_code(each.code)} ({_reason(each.reason)})" for each in report.refused]
            return f"{text} Refused operations: {'; '.join(refused)}." if refused else text
        case "applying":
            return f"{what}: it is being applied."
        case "dismissed":
            return f"{what}: the user dismissed it; {unchanged}."
        case "superseded":
            return f"{what}: the user wrote on instead; {unchanged}, and it cannot be applied any more."
        case _:
            code = f" ({_code(proposal.code)})" if proposal.code is not None else ""
            failed = f" Before, {unchanged}{code}." if applying is not None else ""
            return f"{what}: it waits for the user's decision.{failed}"


def _code(text: Any) -> str:
    return one_line(str(text), 64)


def _reason(text: Any) -> str:
    return one_line(str(text or ""), 200)


def outcomes_of(result: Any) -> list[dict[str, Any]]:
    """Return what the result of `apply_proposal` or `check_proposal` says of each operation, as far as it does."""
    found = result.get("operations") if isinstance(result, dict) else None
    return [
        {**each, "reason": str(each.get("reason") or "")} if each["status"] == "failed" else each
        for each in (found if isinstance(found, list) else ())
        if isinstance(each, dict) and _is_count(each.get("index")) and isinstance(each.get("status"), str)
    ]


def report_of(result: Any) -> facts.ProposalReport | None:
    """Return what the result of `apply_proposal` says; None: the run has none. What is malformed in it is left out."""
    if not isinstance(result, dict) or not _is_count(result.get("applied")):
        return None
    errors = result.get("errors")
    refused = [
        facts.Verdict(
            index=int(found[1]) if (found := _OF_OPERATION.search(each)) else -1,
            code=_code(each.partition("@")[0]),
            reason=_reason(each),
        )
        for each in (errors if isinstance(errors, list) else ())
        if isinstance(each, str)
    ]
    failed = [each for each in outcomes_of(result) if each["status"] == "failed"]
    of_each = [
        facts.Verdict(
            index=each["index"],
            code=_code(each["code"]),
            field=None if each.get("field") is None else one_line(str(each["field"]), 100),
            reason=_reason(each["reason"]),
        )
        for each in failed
        if "code" in each and result.get("kind") != "schema"  # There it may be that of another one.
    ]
    counts, table_id, version = (result.get(name) for name in ("counts", "table_id", "version"))
    return facts.ProposalReport(
        applied=result["applied"],
        failed=result["failed"] if _is_count(result.get("failed")) else len(failed),
        counts={key: each for key, each in counts.items() if _is_count(each)} if isinstance(counts, dict) else {},
        table_id=table_id if isinstance(table_id, str) else None,
        version=version if _is_count(version) else None,
        refused=(of_each or refused)[: facts.MAX_REASONS],
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
