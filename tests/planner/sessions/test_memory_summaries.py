"""When a summary of older turns is due, what it covers, and how it is requested."""

import pytest

from contracts.runs.requests import KeyBudget, Memory
from contracts.sessions.records import RunBegun, RunEnded, RunQueued, SessionRecord, Summarised
from services.planner.agents import SUMMARY_AGENT, agent_of
from services.planner.sessions.memory import (
    RequestSummary,
    covered,
    of_session,
    summary_request,
    summary_run,
)
from services.shared.sessions.fold import fold
from services.shared.sessions.state import Session
from tests.support.model_server import words

MEMORY = Memory(recent_turns=4, summary_model="openai/small")
BUDGET = KeyBudget(max_tokens=9)


def ended(session: Session, number: int, size: int = 3) -> Session:
    """The session after one more run."""
    run = f"{number:032x}"
    end = RunEnded(run=run, outcome="done", question=f"q{number}", answer=f"a{number} {words(size)}")
    return fold(session, number, SessionRecord(events=[RunQueued(run=run, requested_at=7), RunBegun(run=run), end]))


def session_of(count: int, size: int = 3) -> Session:
    session = Session(session_id="s")
    for number in range(1, count + 1):
        session = ended(session, number, size)
    return session


@pytest.mark.parametrize("memory", [MEMORY, Memory(recent_turns=60, max_tokens=400, summary_model="m")])
def test_no_turn_is_ever_lost_where_each_summary_is_made_in_time(memory: Memory) -> None:
    """Over 300 turns; and far fewer summaries than turns are made."""
    session, summaries = Session(session_id="s"), 0
    for number in range(1, 301):
        session = ended(session, number)
        if turns := covered(session, memory):
            summaries += 1
            event = Summarised(through=turns[-1].run, run="0" * 32, text=f"summary {summaries}")
            session = fold(session, number, SessionRecord(events=[event]))
        assert of_session(session, memory).left_out == 0
        assert covered(session, memory) == []
    assert 50 < summaries <= 120


def test_the_request_of_a_summary() -> None:
    """The turns are data in it; its agent uses no tools, and has little time."""
    session = fold(session_of(5), 6, SessionRecord(events=[Summarised(through="x", run="0" * 32, text="Before.")]))
    run = summary_run("s", "f" * 32)
    session = fold(session, 7, SessionRecord(at=9, events=[RunQueued(run=run, cause="summary", requested_at=0)]))
    request = summary_request("acme", session, RequestSummary(run, MEMORY, "ann", BUDGET))
    assert request is not None
    assert (request.run_id, request.tenant, request.requested_at, request.session_id) == (run, "acme", 9, "s")
    assert (request.cause, request.through, request.model) == ("summary", f"{3:032x}", "openai/small")
    assert (request.agent, request.tools) == (SUMMARY_AGENT, [])
    assert (request.key_id, request.key_budget) == ("ann", BUDGET), "it is paid by the key of the run before it"
    assert request.llm_context["summary"] == "Before."
    assert [turn["question"] for turn in request.llm_context["turns"]] == ["q1", "q2", "q3"]
    assert "at most 400 words" in request.query
    agent = agent_of({}, SUMMARY_AGENT)
    assert agent is not None
    assert (agent.tools, agent.limits) == ([], {"max_steps": 2, "deadline_s": 120})
    assert summary_request("acme", session_of(2), RequestSummary(run, MEMORY)) is None
