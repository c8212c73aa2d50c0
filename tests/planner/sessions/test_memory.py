"""How much of a conversation a run is shown, within a bound of tokens; and when a summary of the rest is made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.requests import ConversationMessage, KeyBudget, Memory
from contracts.sessions.records import RunBegun, RunEnded, RunQueued, SessionRecord, Summarised
from services.planner.agents import SUMMARY_AGENT, agent_of
from services.planner.conversation.encoding import CUT_MARKER, Message, compact, text_tokens
from services.planner.conversation.messages import past_messages
from services.planner.conversation.rendering import JsonActions
from services.planner.run.state.history import Conversation, PastTurn
from services.planner.sessions.memory import (
    RequestSummary,
    bounded,
    covered,
    of_messages,
    of_session,
    summary_request,
    summary_run,
)
from services.shared.sessions.fold import fold
from services.shared.sessions.state import Session
from tests.support.model_server import words


def turns(count: int, size: int = 3) -> list[PastTurn]:
    """Turns that can be told apart; each text has `size` words."""
    return [PastTurn(f"question {number} {words(size)}", f"answer {number} {words(size)}") for number in range(count)]


def rendered_tokens(conversation: Conversation) -> int:
    """What the messages of a conversation take, estimated as all requests are."""
    messages: list[Message] = past_messages(conversation, JsonActions("legacy").decision)
    return sum(text_tokens(message["content"]) for message in messages)


def test_a_turn_that_is_too_long_is_cut() -> None:
    """It is the newest one; its texts keep their beginnings and ends, with a mark between them."""
    long = PastTurn(f"BEGIN {words(5_000)} END", "short", inputs=("one", "two"))
    (found,) = bounded([*turns(3), long], Memory(max_tokens=400)).turns
    assert found.question.startswith("BEGIN")
    assert found.question.endswith("END")
    assert CUT_MARKER in found.question
    assert found.answer == "short"
    assert found.inputs == ("one\ntwo",)


def test_messages_of_a_caller_become_turns() -> None:
    """Whatever their order."""

    def said(*messages: str) -> tuple[PastTurn, ...]:
        given = [
            ConversationMessage.model_validate(
                {"role": {"u": "user", "a": "assistant"}[message[0]], "content": message[1:]}
            )
            for message in messages
        ]
        return of_messages(given, Memory()).turns

    assert said() == ()
    assert said("uHi", "aHello", "uWhy?") == (PastTurn("Hi", "Hello"), PastTurn("Why?"))
    assert said("uHi", "uThere", "aHello", "aAgain") == (PastTurn("Hi", "Hello\n\nAgain", inputs=("There",)),)
    assert said("aWelcome", "uHi") == (PastTurn("", "Welcome"), PastTurn("Hi"))


TEXTS = st.text(st.sampled_from('ab "\\\n\té😀\x00'), max_size=600)
TURNS = st.lists(
    st.builds(PastTurn, TEXTS, TEXTS, inputs=st.lists(TEXTS, max_size=3).map(tuple), images=st.integers(0, 2)),
    max_size=8,
)
MEMORIES = st.builds(Memory, recent_turns=st.integers(0, 8), max_tokens=st.integers(100, 2_000))


@given(TURNS, MEMORIES, TEXTS, st.integers(0, 9), st.integers(0, 3))
def test_what_is_shown_is_the_end_of_the_conversation(
    turns: list[PastTurn], memory: Memory, summary: str, summarised: int, older: int
) -> None:
    """Whatever was said: within the bound, without a gap, and each turn is shown, summarised or counted."""
    summarised = min(summarised, older + len(turns)) if summary else 0
    found = bounded(turns, memory, summary=summary, summarised=summarised, older=older)
    assert rendered_tokens(found) <= memory.max_tokens
    assert len(found.turns) <= memory.recent_turns
    whole = found.turns[1:] if len(found.turns) == 1 else found.turns
    assert list(whole) == turns[len(turns) - len(whole) :]
    hidden = older + len(turns) - len(found.turns)
    assert found.left_out == max(0, hidden - summarised)
    assert found.summary == (summary if hidden else "") or text_tokens(compact(summary)) > memory.max_tokens // 2


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
