"""Messages are encoded once, and leave as if all of them had been encoded together."""

import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.conversation.encoding import EncodedHistory, Messages, decoded, encoded, merged
from services.planner.models.openai_compatible import body_of
from services.planner.models.providers import Endpoint
from services.planner.models.types import ModelRequest

SYSTEM = {"role": "system", "content": "Be brief."}
NOTE = {"role": "user", "content": "Answer now."}
IMAGE = {"type": "image", "artifact_id": "0" * 32, "name": "a.png"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
MESSAGES = st.lists(
    st.one_of(
        st.builds(
            lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant"]), st.text()
        ),
        st.builds(lambda text: {"role": "user", "content": [{"type": "text", "text": text}, IMAGE]}, st.text()),
        st.just({"role": "assistant", "tool_calls": [CALL]}),
        st.builds(lambda text: {"role": "tool", "tool_call_id": "c1", "content": text}, st.text()),
    )
)


def history_of(messages: list[dict[str, Any]]) -> EncodedHistory:
    """A history to which these were added one by one."""
    history = EncodedHistory()
    for message in messages:
        history.add(message)
    return history


@given(messages=MESSAGES)
def test_a_request_is_that_of_its_messages(messages: list[dict[str, Any]]) -> None:
    """Whatever is encoded already, the messages that leave and the estimated tokens are the same."""
    request = history_of(messages).request(SYSTEM, [NOTE])
    plain = Messages.of([SYSTEM, *messages, NOTE])
    assert decoded(merged(request.pieces)) == decoded(merged(plain.pieces))
    assert request.tokens == plain.tokens


def test_only_the_newest_messages_and_those_with_images_are_objects() -> None:
    """However long the history is: its request has a handful of pieces."""
    image = {"role": "user", "content": [IMAGE]}
    turn = [{"role": "assistant", "content": "act"}, {"role": "user", "content": "result"}]
    history = history_of([*turn * 500, image, *turn * 500])
    pieces = history.request(SYSTEM, [NOTE]).pieces
    kinds = [piece if isinstance(piece, dict) else "bytes" for piece in pieces]
    assert kinds == [SYSTEM, "bytes", turn[1], image, "bytes", turn[1], NOTE]
    assert history.messages == 2001


def test_python_does_no_work_per_message() -> None:
    """The same number of calls builds the body of a request, for 10 messages and for 10,000."""

    def calls(turns: int) -> int:
        turn = [{"role": "assistant", "content": "act"}, {"role": "user", "content": "result"}]
        history, count = history_of([*turn * turns]), 0
        endpoint = Endpoint("", "x", None, reasons=False)

        def listen(_frame: object, event: str, _arg: object) -> None:
            nonlocal count
            count += event in {"call", "c_call"}

        sys.setprofile(listen)
        try:
            body = body_of(ModelRequest(model="openai/x", messages=history.request(SYSTEM, [NOTE])), endpoint)
        finally:
            sys.setprofile(None)
        assert len(orjson.loads(body)["messages"]) == 2 * turns + 1
        return count

    calls(1)  # The table of models is read at the first request.
    assert calls(5) == calls(5000)


@pytest.mark.parametrize("text", ["\ud800", 'é " \\ \n \x00 😀'])
def test_any_text_is_encoded(text: str) -> None:
    """A lone surrogate, which some tools return, is escaped."""
    message = {"role": "user", "content": text}
    assert decoded([encoded(message)]) == [message]
