"""Messages are encoded once, count as what they hold, and are compacted rarely, with every step still in them."""

import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.artifacts import ImageRef
from contracts.runs.payload import Usage
from services.planner.agents import Agent
from services.planner.conversation import encoding
from services.planner.conversation.encoding import TOKENS_PER_IMAGE, EncodedHistory, Messages, decoded, encoded, merged
from services.planner.models.openai_compatible import body_of
from services.planner.models.providers import Endpoint
from services.planner.models.types import ModelRequest
from services.planner.run.commands import Rules
from services.planner.run.turn.decision import Calls
from tests.planner.run_world import REACT, World, finished, started
from tests.support.model_server import words

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


STEPS = 300


def call_of(number: int) -> Calls:
    return Calls(node="work", calls=(("work", {"q": f"n{number} {words(60)}"}),), usage=Usage(model_calls=1))


def long_run(max_characters: int) -> World:
    """A run of hundreds of steps; each gives a long result."""
    world = World(Rules(strategy=REACT, max_characters=max_characters))
    world.play(world.handling("REQUESTS:1", started=started(max_steps=1000)), call_of(1))
    for number in range(1, STEPS):
        outcome = finished(f"{number}-1", observation={"text": f"found {number}: {words(60)}"})
        world.play(world.handling(f"INBOX:{number}", outcome), call_of(number + 1))
    return world


def test_a_long_run_is_compacted_now_and_then() -> None:
    """Not at every step, also where all lines are short already and the limit is still too low."""
    world = long_run(80_000)
    compactions = world.types().count("compacted")
    assert 2 <= compactions <= 12
    said = "\n".join(
        str(message["content"]) for message in REACT.request(world.run, [], Agent()).messages.objects()[1:]
    )
    assert all(
        f'"q":"n{number} ' in said and f'"call":"{number}-1","tool":"work","status":"succeeded"' in said
        for number in range(1, STEPS)
    )


def test_an_image_counts_as_an_image() -> None:
    """Not as its bytes; older results lose theirs when the conversation is shortened, the question keeps its own."""
    ref = ImageRef(artifact_id="0" * 32, mime_type="image/png")
    message: dict[str, Any] = {"role": "user", "content": encoding.with_images("What?", [ref])}
    assert encoding.length(message) == len("What?") + encoding.CHARACTERS_PER_IMAGE
    later: dict[str, Any] = {
        "role": "user",
        "content": [{"type": "text", "text": "See:"}, {"type": "image", "inline": "A" * 40_000, "name": "x"}],
    }
    said: list[dict[str, Any]] = [
        message,
        {"role": "assistant", "content": "a"},
        later,
        {"role": "assistant", "content": "b"},
    ]
    short = encoding.compacted(said, 200)
    assert short[0] == message
    assert short[2]["content"] == f"See:\n{encoding.LEFT_OUT}"
    hydrated = [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 40_000}}],
        }
    ]
    assert Messages.of(hydrated).tokens == TOKENS_PER_IMAGE
