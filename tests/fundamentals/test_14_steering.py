"""People may add to a run that is under way: the model receives it with its next decision."""

import httpx
import pytest

from runwire import Client
from runwire.errors import RunAlreadyEnded
from runwire.events import Chunk, InputAdded
from tests.fundamentals.conftest import ACME_KEY, ANN_KEY, KEYED_GATEWAY, answer_in, until
from tests.support.model_server import ModelServer, Say, action, answer, words
from tests.support.stack import Stack
from tests.support.waiting import wait_until


async def test_a_text_takes_effect_at_the_next_decision(client: Client, model: ModelServer) -> None:
    """The call that is under way is finished; then the model has its result and the text."""
    model.say(action("take_nap", seconds=2), answer("Rested, and in verse."))
    run_id = await client.start("Take a nap, and tell of it", agent="scripted")
    await until(client, run_id, "tool_progress")
    await client.send_input(run_id, "in verse, please")
    run = await client.result(run_id)

    assert answer_in(run) == "Rested, and in verse."
    second = model.ledger[1].text
    assert "slept 2 seconds" in second
    assert "in verse, please" in second


async def test_an_answer_being_written_is_finished_and_superseded(client: Client, model: ModelServer) -> None:
    """The run does not end with an answer to less than it was asked."""
    model.say(Say(text=answer(words(80)).text, pause_s=0.03), answer("It was a dream."))
    run_id = await client.start("Tell me a long story", agent="scripted")
    await until(client, run_id, "chunk")
    await client.send_input(run_id, "with a happy end")
    seen = [event async for event in client.follow(run_id)]

    run = await client.status(run_id)
    assert answer_in(run) == "It was a dream."
    assert words(80) in model.ledger[1].text, "the model sees what it has written"
    shown = [event for event in seen if isinstance(event, Chunk)]
    last = shown[-1].action_seq
    assert "".join(chunk.text for chunk in shown if chunk.action_seq == last) == "It was a dream."


async def test_a_redirect_takes_the_place_of_the_question(client: Client, model: ModelServer) -> None:
    """What the model is writing is broken off at once."""
    model.say(Say(text=answer(words(500)).text, pause_s=0.03), answer("A short one."))
    run_id = await client.start("Tell me a long story", agent="scripted")
    await until(client, run_id, "chunk")
    await client.send_input(run_id, "Tell me a joke instead", redirect=True)
    run = await client.result(run_id)

    assert answer_in(run) == "A short one."
    assert "Tell me a joke instead" in model.ledger[1].text
    await wait_until(lambda: model.ledger[0].ended == "gone", what="the first request to the model is closed")


async def test_the_texts_of_all_senders_are_received_in_their_order(
    stack: Stack, client: Client, model: ModelServer
) -> None:
    """Each text has its place in the run's log, with the key that sent it."""
    assert client is not None
    model.say(action("take_nap", seconds=2.5), answer("Green it is."))
    url = stack.url_of(KEYED_GATEWAY)
    async with Client(url, ACME_KEY) as anybody, Client(url, ANN_KEY) as ann:
        run_id = await ann.start("Which colour?", agent="scripted")
        await until(ann, run_id, "tool_progress")
        for sender, text in ((ann, "in red"), (anybody, "in blue"), (ann, "no, in green")):
            await sender.send_input(run_id, text)
        added = [event async for event in ann.follow(run_id) if isinstance(event, InputAdded)]

    assert [event.text for event in added] == ["in red", "in blue", "no, in green"]
    assert [event.by == "ann" for event in added] == [True, False, True]
    places = [model.ledger[1].text.index(event.text) for event in added]
    assert places == sorted(places)


async def test_a_run_keeps_64_inputs_for_its_next_decision(client: Client, http: httpx.AsyncClient) -> None:
    """A further one is refused, and says when to try again."""
    run_id = await client.start("Take a nap of 50 seconds")
    await until(client, run_id, "tool_progress")
    for number in range(64):
        await client.send_input(run_id, f"text {number}")
    refused = await http.post(f"/v1/runs/{run_id}/input", json={"text": "one too many"})
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_inputs")
    assert int(refused.headers["Retry-After"]) > 0
    await client.cancel(run_id)


async def test_a_run_that_has_ended_takes_no_input(client: Client) -> None:
    """Ask again in its session."""
    run = await client.chat("What is 1+1?")
    with pytest.raises(RunAlreadyEnded) as refused:
        await client.send_input(run.run_id, "and 2+2?")
    assert (refused.value.status, refused.value.code) == (409, "run_ended")
