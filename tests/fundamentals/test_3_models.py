"""A model decides by writing one action. What it writes is checked, and a reply that cannot be used is repaired."""

from runwire import Client
from runwire.events import Done, Observed, Repaired, RunEvent
from tests.support.model_server import ModelServer, Say, action, answer

CUT_OFF = '{"next_node": "calculate", "args": {"expression": "17*'


async def test_a_reply_that_cannot_be_used_is_repaired(client: Client, model: ModelServer) -> None:
    """The model reads what is wrong and is called again. Nothing of the damaged action is carried out."""
    model.say(Say(text=CUT_OFF), action("calculate", expression="17*23"), answer("It is 391."))
    run_id = await client.start("What is 17*23?", agent="scripted")
    seen = [event async for event in client.follow(run_id)]

    (repaired,) = [event for event in seen if isinstance(event, Repaired)]
    assert "a string is not closed" in repaired.reason
    assert "a string is not closed" in model.ledger[1].text
    assert len([event for event in seen if isinstance(event, Observed)]) == 1
    assert isinstance(seen[-1], Done)
    assert seen[-1].raw_answer == "It is 391."
    assert seen[-1].usage.repairs == 1


async def test_one_action_may_be_written_in_many_ways(client: Client, model: ModelServer) -> None:
    """Prose around the object, single quotes, trailing commas: the action means the same."""
    model.say(
        Say(text="I compute it. ```json\n{'next_node': 'calculate', 'args': {'expression': '2^10',},}\n```"),
        answer("1024"),
    )
    run = await client.chat("What is 2^10?", agent="scripted")

    assert run.usage is not None
    assert (run.usage.tool_calls, run.usage.repairs) == (1, 0)


async def test_native_tool_calls_make_the_same_run(client: Client, model: ModelServer) -> None:
    """With `action_transport: tools` the model is offered functions, and calls them. Steps and events are the same."""
    model.say(
        Say(tool_calls=[{"name": "calculate", "arguments": '{"expression": "6*7"}'}]),
        Say(tool_calls=[{"name": "final_response", "arguments": '{"answer": "It is 42."}'}]),
    )
    run_id = await client.start("What is 6*7?", agent="native")
    native = [event async for event in client.follow(run_id)]
    offered = {each["function"]["name"] for each in model.ledger[0].body["tools"]}
    assert {"calculate", "take_nap", "final_response"} <= offered

    model.reset()
    model.say(action("calculate", expression="6*7"), answer("It is 42."))
    run_id = await client.start("What is 6*7?", agent="scripted")
    plain = [event async for event in client.follow(run_id)]
    assert "tools" not in model.ledger[0].body
    assert isinstance(native[-1], Done)
    assert isinstance(plain[-1], Done)
    assert native[-1].raw_answer == plain[-1].raw_answer == "It is 42."
    assert facts(native) == facts(plain)


def facts(events: list[RunEvent]) -> list[str]:
    """The types of what happened, without the chunks, whose number depends on the provider."""
    return [event.type for event in events if event.type != "chunk"]
