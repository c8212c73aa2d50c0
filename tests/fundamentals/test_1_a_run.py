"""A run is one question put to an agent. It ends in one `FinalPayload`, and its events tell how it got there."""

import pytest

from runwire import Client
from runwire.errors import IdempotencyConflict
from runwire.events import Chunk, Done, Step
from tests.support.model_server import USAGE, ModelServer, action, answer, words


async def test_a_question_is_answered_with_a_tool(client: Client) -> None:
    """Ask, wait, read the payload. The demo model says in a warning what it is."""
    run = await client.chat("What is 17*23?")

    assert run.status == "done"
    assert run.payload is not None
    assert "391" in run.payload.raw_answer
    assert any("builtin/rehearsal" in warning for warning in run.payload.warnings)


async def test_a_run_is_watched_as_it_happens(client: Client) -> None:
    """Every fact is an event: the decision, its call, the outcome, the answer in chunks, the end."""
    run_id = await client.start("What is 6*7?")
    seen = [event async for event in client.follow(run_id)]

    assert [event.type for event in seen[:2]] == ["run_started", "asked"]
    called = next(event for event in seen if isinstance(event, Step) and event.status == "started")
    assert called.node == "calculate"
    assert isinstance(seen[-1], Done)
    assert "42" in seen[-1].raw_answer


async def test_the_chunks_of_an_answer_are_its_text(client: Client, model: ModelServer) -> None:
    """The answer is shown while the model writes it. Joined, the chunks are exactly the `raw_answer` of the payload."""
    model.say(answer(words(60)))
    run_id = await client.start("Tell me a story", agent="scripted")
    seen = [event async for event in client.follow(run_id)]

    chunks = [event for event in seen if isinstance(event, Chunk)]
    assert len(chunks) > 1
    assert [chunk.seq for chunk in chunks] == list(range(len(chunks)))
    assert isinstance(seen[-1], Done)
    assert "".join(chunk.text for chunk in chunks) == seen[-1].raw_answer == words(60)


async def test_a_late_listener_sees_the_same(client: Client) -> None:
    """The run is its log: who comes after the end reads what the first listener saw, from any point on."""
    run_id = await client.start("What is 2+2?")
    stream = client.follow(run_id)
    first = []
    middle = None
    async for event in stream:
        first.append(event)
        if event.type == "observed":
            middle = stream.cursor, len(first)

    assert [event async for event in client.follow(run_id)] == first
    assert middle is not None
    cursor, position = middle
    later = [event async for event in client.follow(run_id, after=cursor)]
    assert later == first[-len(later) :]
    assert len(later) >= len(first) - position


async def test_a_run_says_what_it_has_used(client: Client, model: ModelServer) -> None:
    """Calls of models and tools, and tokens as the provider counts them."""
    model.say(action("calculate", expression="1+1"), answer("It is 2."))
    run = await client.chat("What is 1+1?", agent="scripted")

    assert run.usage is not None
    assert (run.usage.model_calls, run.usage.tool_calls) == (2, 1)
    assert run.usage.prompt_tokens == 2 * USAGE["prompt_tokens"]
    assert run.usage.completion_tokens == 2 * USAGE["completion_tokens"]


async def test_asking_twice_with_one_key_is_asking_once(client: Client) -> None:
    """A caller that does not know whether its request arrived repeats it under the same idempotency key."""
    first = await client.start("What is 1+1?", idempotency_key="tutorial")
    again = await client.start("What is 1+1?", idempotency_key="tutorial")
    assert first == again
    with pytest.raises(IdempotencyConflict):
        await client.start("What is 2+2?", idempotency_key="tutorial")
