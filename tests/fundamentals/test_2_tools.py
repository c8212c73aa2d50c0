"""A tool is a service of its own. It is found by itself, and its results are checked before a model sees them."""

import asyncio

from runwire import Client
from runwire.events import Called, Observed, Step, ToolProgress
from tests.support.model_server import ModelServer, action, answer
from tests.support.stack import Stack
from tests.support.waiting import wait_until


async def test_tools_are_found_with_their_schemas(client: Client) -> None:
    """A process that serves a tool announces it; the catalogue shows it to models and people."""
    tools = {}

    async def are_found() -> bool:
        tools.update({spec.name: spec for spec in await client.tools()})
        return {"calculate", "analyze_table", "take_nap", "post_postcard"} <= set(tools)

    await wait_until(are_found, what="the tools of all three processes are in the catalogue")
    assert tools["take_nap"].input_schema["properties"]["seconds"]["maximum"] == 60
    assert tools["take_nap"].idempotent
    assert not tools["post_postcard"].idempotent


async def test_a_tool_reports_its_progress(client: Client) -> None:
    """Progress is for people; it reaches everyone who listens."""
    run_id = await client.start("Take a nap of 0.1 seconds")
    seen = [event async for event in client.follow(run_id)]
    assert [event.message for event in seen if isinstance(event, ToolProgress)] == ["asleep"]


async def test_a_tool_that_fails_tells_the_model_why(client: Client, model: ModelServer) -> None:
    """The failure is an observation like any other. The model reads the reason and tries something else."""
    model.say(
        action("count_inhabitants", city="Atlantis"), action("count_inhabitants", city="Porto"), answer("231,800")
    )
    run_id = await client.start("How many people live in Atlantis?", agent="scripted")
    outcomes = [event async for event in client.follow(run_id) if isinstance(event, Observed)]

    assert [outcome.status for outcome in outcomes] == ["failed", "succeeded"]
    assert outcomes[0].failure is not None
    assert outcomes[0].failure.reason == "Atlantis is not in the register; it holds Lisbon and Porto"
    assert outcomes[0].failure.reason in model.ledger[1].text


async def test_arguments_are_checked_before_the_tool_is_called(client: Client, model: ModelServer) -> None:
    """The model reads which argument does not fit the schema."""
    model.say(action("take_nap", seconds=900), answer("I will not sleep that long."))
    run = await client.chat("Sleep for a quarter of an hour", agent="scripted")

    assert run.usage is not None
    assert (run.usage.tool_calls, run.usage.repairs) == (0, 1)
    assert "900 is greater than the maximum of 60" in model.ledger[1].text


async def test_several_calls_run_at_once_and_a_join_takes_their_results(client: Client, model: ModelServer) -> None:
    """A plan is one decision: its steps run in parallel, then the join gets their results in the order of the steps."""
    cities = ("Lisbon", "Porto")
    steps = [{"node": "count_inhabitants", "args": {"city": city}} for city in cities]
    model.say(action("plan", steps=steps, join={"node": "add_up_inhabitants"}), answer("777,596"))
    run_id = await client.start("How many people live in Lisbon and Porto?", agent="scripted")
    seen = [event async for event in client.follow(run_id)]

    started = next(event for event in seen if isinstance(event, Step) and event.status == "started")
    assert [call.args["city"] for call in started.calls] == list(cities)
    join = next(event for event in seen if isinstance(event, Called))
    assert [result["city"] for result in join.calls[0].args["results"]] == list(cities)
    outcomes = [event for event in seen if isinstance(event, Observed)]
    assert outcomes[-1].observation == {"inhabitants": 777_596}
    assert len(model.ledger) == 2, "the model is asked once for the plan, and once for the answer"


async def test_a_tool_that_goes_away_leaves_the_catalogue(client: Client, stack: Stack) -> None:
    """An entry lives as long as some process serves the tool, and comes back with it."""
    stack.kill("table-1")

    async def gone() -> bool:
        await asyncio.sleep(0.1)
        return "analyze_table" not in {spec.name for spec in await client.tools()}

    await wait_until(gone, timeout=30, what="the tool has left the catalogue")
    stack.spawn("table-1")

    async def back() -> bool:
        return not await gone()

    await wait_until(back, timeout=15, what="the tool is back")
