"""A tool may ask a person in the middle of a call. No process waits for the answer: all of them may die meanwhile."""

import pytest

from runwire import Client, RunwireError
from runwire.client import OpenPause
from runwire.events import Observed
from tests.fundamentals.conftest import answer_in, noted, restart
from tests.support.model_server import ModelServer, action, answer
from tests.support.stack import Stack

CALL = action("book_seat", flight="LX 8")


async def asked(client: Client, run_id: str, title: str) -> OpenPause:
    """Return what the run waits for, once that is a certain question."""
    [pause] = (await client.wait(run_id)).pauses
    assert pause.title == title
    return pause


async def test_a_tool_asks_and_its_function_goes_on_with_the_answers(client: Client, model: ModelServer) -> None:
    """An answer that does not fit the tool's schema is refused, and the question stays."""
    model.say(CALL, answer("Seat 7A is yours."))
    run_id = await client.start("Book me a seat on LX 8", agent="scripted")

    question = await asked(client, run_id, "Which seat on LX 8?")
    assert (question.reason, question.source, question.tool) == ("input", "tool", "book_seat")
    assert question.payload == {"free": ["3C", "7A"]}
    with pytest.raises(RunwireError, match="invalid_input"):
        await client.answer(question, {"name": "by the window"})
    await client.answer(question, {"name": "7A"})
    await client.approve(await asked(client, run_id, "Book 7A?"))

    run = await client.result(run_id)
    assert answer_in(run) == "Seat 7A is yours."
    assert "7A by offer for LX 8" in model.ledger[1].text, "the model reads what the tool has returned"


async def test_a_person_who_says_no_is_heard_by_the_model(client: Client, model: ModelServer) -> None:
    """The call fails with the note."""
    model.say(CALL, answer("I did not book it."))
    run_id = await client.start("Book me a seat on LX 8", agent="scripted")
    await client.reject(await asked(client, run_id, "Which seat on LX 8?"), note="take the train")
    outcomes = [event async for event in client.follow(run_id) if isinstance(event, Observed)]
    assert [outcome.failure and outcome.failure.code for outcome in outcomes] == ["rejected"]
    assert "take the train" in model.ledger[1].text


async def test_everything_may_die_while_a_person_thinks(client: Client, model: ModelServer, stack: Stack) -> None:
    """The next process of the tool gets the answers and what the first one has kept. No side effect is repeated."""
    model.say(CALL, answer("Seat 3C is yours."))
    run_id = await client.start("Book me a seat on LX 8", agent="scripted")
    question = await asked(client, run_id, "Which seat on LX 8?")
    restart(stack, "tools-1", "tool_runner-1", "planner-1")
    await client.answer(question, {"name": "3C"})
    await client.approve(await asked(client, run_id, "Book 3C?"))

    run = await client.result(run_id)
    assert answer_in(run) == "Seat 3C is yours."
    assert len(noted(stack, "offers", run_id)) == 1
