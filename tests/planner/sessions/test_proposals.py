"""What may become of a proposal: each cell of the table, which the document repeats; and what the next turn reads."""

from collections.abc import Sequence
from typing import Any, get_args

import pytest

from contracts.runs.requests import RunRequested
from contracts.sessions import proposals as facts
from contracts.sessions.records import RunEnded, SessionRunEnded, SessionRunsForgotten
from services.planner.sessions import decide, proposals
from services.shared.sessions.proposals import TRANSITIONS, notes, report_of
from services.shared.sessions.proposals import fold as fold_proposals
from services.shared.sessions.state import Session
from tests.planner.sessions.tasks.session_world import World, request, run_id, table

FIRST, SECOND, JOB = map(run_id, ("first", "second", "job"))
P, Q = "1" * 32, "2" * 32
CHANGED = facts.Verdict(index=2, code="row_changed", reason="it was changed")
REPORT = facts.ProposalReport(applied=1, failed=1, table_id="tab_1", version=8, refused=[CHANGED])


def ended(name: str, *proposals: str, outcome: Any = "done", cause: Any = "user", **fields: Any) -> SessionRunEnded:
    """The end of a run; a turn may have proposed something."""
    payloads = [facts.PayloadKept(payload_id=each, kind="data_proposal", summary="Three changes") for each in proposals]
    of_run = RunEnded(run=run_id(name), outcome=outcome, question="q", answer="a", payloads=payloads)
    return SessionRunEnded(ended=of_run, cause=cause, **fields)


def control(proposal: str = P, job: str = "job", operations: Sequence[int] = (0, 2)) -> facts.SessionProposalControl:
    """An apply of two operations."""
    applying = facts.ProposalApplying(proposal_id=proposal, operations=[*operations], of=3, job=run_id(job))
    return facts.SessionProposalControl(session_id="s", proposal_id=proposal, apply=applying, request=request(job))


DISMISS = facts.SessionProposalControl(session_id="s", proposal_id=P)
APPLIED = ended("job", cause="call", report=REPORT)
FAILED = ended("job", cause="call", outcome="error")
Cause = RunRequested | decide.Received
BY_NAME: dict[str, list[list[Cause]]] = {
    "a new message": [[request("third")]],
    "a new message with keep_proposal": [[request("third", keep_proposal=True)]],
    "a later turn ends with a proposal": [[ended("second", Q)]],
    "apply": [[control()], [control(operations=[1], job="other")]],
    "dismiss": [[DISMISS]],
    "the apply's run ends": [[APPLIED], [FAILED], [ended("second", Q), FAILED]],
}
"""Each with what may happen, and before the last one in the state `applying` alone."""


def handled(session: Session, *causes: Cause) -> Session:
    world = World(session)
    world.take(*causes, by="I:9")
    return world.session


def in_state(state: str) -> Session:
    """A session whose first turn has made a proposal, and whose second one goes on."""
    session = handled(Session(), request("first"), request("second"), ended("first", P))
    return handled(session, control()) if state == "applying" else session


TABLE = table(proposals.__doc__ or "", "what happens | pending")


@pytest.mark.parametrize(("what", "state"), TABLE)
def test_a_cell_says_what_may_become_of_a_proposal(what: str, state: str) -> None:
    """Exactly its states, over all ways in which it happens."""
    found = set()
    for causes in BY_NAME[what]:
        if state == "pending" and len(causes) > 1:
            continue
        session = in_state(state)
        before = session.proposals[P]
        assert before.state == state
        later = handled(session, *causes).proposals
        found.add(later[P].state)
        assert sum(each.state == "pending" for each in later.values()) <= 1
    assert found == {*TABLE[what, state].split(", ")}


def test_only_legal_transitions_change_a_proposal() -> None:
    """Every event in every state, in the fold."""
    kept = in_state("applying").proposals
    events: list[Any] = [
        facts.ProposalPending(proposal_id=P, run=FIRST, kind="data_proposal", summary=""),
        facts.ProposalApplying(proposal_id=P, operations=[0], of=3, job=SECOND),
        facts.ProposalApplied(proposal_id=P, job=JOB, report=REPORT),
        facts.ProposalReleased(proposal_id=P, job=JOB, code="internal"),
        facts.ProposalDismissed(proposal_id=P),
        facts.ProposalSuperseded(proposal_id=P, by=SECOND),
    ]
    assert {each.type for each in events} == {*TRANSITIONS}
    for event in events:
        before, to = TRANSITIONS[event.type]
        for state in (None, *get_args(facts.ProposalState)):
            now = kept | {P: kept[P].model_copy(update={"state": state})}
            later = fold_proposals(now, event, 9, 0)
            assert (
                (later[P].state == to, later[P].changed_seq == 9) == (True, True) if state in before else later == now
            )
        assert fold_proposals({}, event, 9, 0) == {}


def test_a_redelivered_decision_requests_the_same_run() -> None:
    """As long as it is being applied; another choice requests none. A session that is being deleted takes none."""
    session = in_state("applying")
    assert decide.receive(session, control(), "I:9") == []
    again = [each for each in decide.commands(session, control()) if isinstance(each, proposals.RequestApply)]
    assert [each.request.run_id for each in again] == [JOB]
    for later, message in ((session, control(operations=[1])), (handled(session, APPLIED), control())):
        assert not any(isinstance(each, proposals.RequestApply) for each in decide.commands(later, message))
    assert JOB in session.open_runs()
    failed = handled(session, FAILED)
    assert failed.proposals[P].state == "pending"
    assert decide.receive(failed, control(), "I:9") == [], "this apply has ended"
    deleting = in_state("pending").model_copy(update={"is_deleting": True})
    assert decide.receive(deleting, control(), "I:9") == []


@pytest.mark.parametrize(
    ("end", "code"),
    [(ended("job", outcome="error"), "error"), (SessionRunsForgotten(runs=[JOB]), "deleted"), (FAILED, "error")],
    ids=["nobody can read its request", "it is deleted before it begins", "it fails"],
)
def test_an_apply_ends_however_its_run_does(end: Any, code: str) -> None:
    """The proposal is given back, or closed where another one is pending by then. What is no apply changes nothing."""
    found = handled(in_state("applying"), end).proposals[P]
    assert (found.state, found.code) == ("pending", code)
    found = handled(in_state("applying"), ended("second", Q), end).proposals[P]
    assert (found.state, found.superseded_by) == ("superseded", SECOND)
    pending = in_state("pending")
    assert (pending.pending_proposal, handled(pending, DISMISS).pending_proposal) == (P, None)
    assert handled(pending, end) == pending
    assert proposals.apply_ended(pending, None, code) == []


def test_a_turn_without_an_answer_proposes_nothing() -> None:
    """Nor one that was cancelled; of several proposals of a turn the last one counts."""
    session = handled(Session(), request("first"))
    for outcome in ("cancelled", "error"):
        assert {each.state for each in handled(session, ended("first", P, outcome=outcome)).proposals.values()} == {
            None
        }
    both = handled(session, ended("first", P, Q)).proposals
    assert {each.payload_id: each.state for each in both.values()} == {P: None, Q: "pending"}


def test_the_next_turn_reads_what_came_of_it() -> None:
    """The real counts and reasons, once; a pending one always."""
    session = handled(in_state("applying"), APPLIED)
    text = notes(session.proposals, session.previous_turn_seq)[0]
    assert all(part in text for part in ("2 of 3", "1 were applied, 1 failed", "tab_1", "version 8", "2: row_changed"))
    session = handled(session, ended("second"), request("third"), ended("third"), request("fourth"))
    assert notes(session.proposals, session.previous_turn_seq) == []
    assert "waits" in notes(in_state("pending").proposals, 99)[0]
    assert "dismissed" in notes(handled(in_state("pending"), DISMISS).proposals, 0)[0]
    failed = handled(in_state("applying"), FAILED)
    for causes in ([], [DISMISS], [request("third")]):
        [told] = notes(handled(failed, *causes).proposals, 0)
        assert "may have changed a part" in told
        assert "nothing was changed" not in told
    assert "wrote on" in notes(handled(in_state("pending"), request("third")).proposals, 0)[0]


def test_a_report_is_read_from_any_result() -> None:
    """Its outcomes may be an artifact; what is no report is none."""
    of_rows = {"index": 2, "status": "failed", "code": "row_changed", "field": "Stage", "reason": "late"}
    known = {"applied": 1, "failed": 1, "counts": {"add": 1}, "table_id": "tab_1", "version": 3, "errors": []}
    found = report_of({**known, "operations": [{"index": 0, "status": "applied"}, of_rows]})
    assert found is not None
    assert (found.applied, [each.code for each in found.refused]) == (1, ["row_changed"])
    found = report_of({**known, "operations": "<artifact:x>", "errors": ["column_id_unknown@operations[0]"]})
    assert found is not None
    assert [each.code for each in found.refused] == ["column_id_unknown"]
    long = {**of_rows, "code": "c" * 99, "field": "f" * 999, "reason": "a\nb" + "x" * 999}
    found = report_of({**known, "operations": [long]})
    assert found is not None
    assert [(len(each.code), len(each.field or ""), len(each.reason)) for each in found.refused] == [(64, 100, 200)]
    assert found.refused[0].reason.startswith("a b")
    assert report_of("text") is report_of({"failed": 1}) is None


ODD: list[Any] = [None, True, -1, 0.5, "x", [], [1], ["x"], {}, {"add": "x"}, [{"index": "1", "status": "failed"}]]


@pytest.mark.parametrize(
    "field", ["applied", "failed", "counts", "table_id", "version", "errors", "operations", "each"]
)
def test_a_malformed_report_is_one_as_far_as_it_can_be_read(field: str) -> None:
    """Its number of applied operations makes it one."""
    for odd in ODD:
        failed = {"index": 1, "status": "failed", "code": odd, "field": odd, "reason": odd}
        found = report_of({"applied": 2, "operations": [odd, failed], field: odd})
        assert found is None if field == "applied" else found is not None
        assert found is None or found.applied == 2
