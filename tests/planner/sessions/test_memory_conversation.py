"""How much of a conversation a run is shown: whole turns, newest first, within a bound of tokens."""

from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.requests import ConversationMessage, Memory
from services.planner.conversation.encoding import CUT_MARKER, Message, text_tokens
from services.planner.conversation.messages import past_messages
from services.planner.conversation.rendering import JsonActions
from services.planner.run.state.history import Conversation, PastTurn
from services.planner.sessions.memory import bounded, of_messages
from tests.support.model_server import words

MEMORY = Memory()


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


def test_a_summary_represents_older_turns() -> None:
    """Turns that are neither shown nor summarised are counted."""
    memory = Memory(recent_turns=5)
    assert bounded(turns(12), memory, summary="They greeted.", summarised=7).left_out == 0
    found = bounded(turns(12), memory, summary="They greeted.", summarised=4)
    assert (found.summary, found.left_out, len(found.turns)) == ("They greeted.", 3, 5)
    assert bounded(turns(12), memory, summary="They greeted.", summarised=9).left_out == 0


def test_messages_of_a_caller_become_turns() -> None:
    """Whatever their order."""

    def said(*messages: str) -> tuple[PastTurn, ...]:
        given = [
            ConversationMessage.model_validate(
                {"role": {"u": "user", "a": "assistant"}[message[0]], "content": message[1:]}
            )
            for message in messages
        ]
        return of_messages(given, MEMORY).turns

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
    assert not found.summary or hidden
