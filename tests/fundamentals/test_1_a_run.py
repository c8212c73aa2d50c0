"""A run is one question put to an agent. It ends in one `FinalPayload`, and its events tell how it got there."""

from contracts.events import Chunk, Done, Step
from runwire import Client


async def test_a_question_is_answered_with_a_tool(client: Client) -> None:
    """Ask, wait, read the payload. The stand-in for a model says what it is."""
    run = await client.chat("What is 17*23?")

    assert run.status == "done"
    assert run.payload is not None
    assert "391" in run.payload.raw_answer
    assert any("builtin/rehearsal" in warning for warning in run.payload.warnings)
    assert run.usage is not None
    assert (run.usage.model_calls, run.usage.tool_calls) == (2, 1)


async def test_a_run_is_watched_as_it_happens(client: Client) -> None:
    """Every fact is an event: the decision, its call, the outcome, the answer in chunks, the end."""
    run_id = await client.start("What is 6*7?")
    seen = [event async for event in client.follow(run_id)]

    assert [event.type for event in seen[:2]] == ["run_started", "asked"]
    called = next(event for event in seen if isinstance(event, Step) and event.status == "started")
    assert called.node == "calculate"
    done = seen[-1]
    assert isinstance(done, Done)
    text = "".join(event.text for event in seen if isinstance(event, Chunk))
    assert text == done.raw_answer
    assert "42" in text


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


async def test_asking_twice_with_one_key_is_asking_once(client: Client) -> None:
    """A caller that does not know whether its request arrived repeats it under the same idempotency key."""
    first = await client.start("What is 1+1?", idempotency_key="tutorial")
    again = await client.start("What is 1+1?", idempotency_key="tutorial")
    assert first == again
