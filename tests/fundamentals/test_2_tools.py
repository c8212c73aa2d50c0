"""A tool is a service of its own. It is found by itself, and its results are checked before a model sees them."""

from contracts.events import ArtifactChunk, Done, Observed, ToolProgress
from runwire import Client
from tests.support.stack import Stack
from tests.support.waiting import wait_until


async def test_tools_are_found_with_their_schemas(client: Client) -> None:
    """Who serves a tool announces it; the catalogue shows it to models and people."""
    tools = {spec.name: spec for spec in await client.tools()}
    assert {"calculate", "analyze_table", "take_nap", "post_postcard"} <= set(tools)
    assert tools["take_nap"].input_schema["properties"]["seconds"]["maximum"] == 60
    assert tools["take_nap"].idempotent
    assert not tools["post_postcard"].idempotent


async def test_an_artifact_streams_while_it_grows_and_ends_in_the_payload(client: Client) -> None:
    """Heavy data never passes through the model: it is shown a placeholder, the payload holds the chart."""
    run_id = await client.start("Which region grew most in sales.csv? Draw a chart.")
    seen = [event async for event in client.follow(run_id)]

    pieces = [event for event in seen if isinstance(event, ArtifactChunk)]
    assert [piece.seq for piece in pieces] == list(range(len(pieces)))
    assert pieces[-1].done
    done = seen[-1]
    assert isinstance(done, Done)
    assert "series" in done.artifacts["analyze_table"]["chart"]
    observed = next(event for event in seen if isinstance(event, Observed))
    assert str(observed.observation["chart"]).startswith("<artifact:")


async def test_a_tool_reports_its_progress(client: Client) -> None:
    """Progress is for people; it reaches everyone who listens."""
    run_id = await client.start("Take a nap of 0.1 seconds")
    seen = [event async for event in client.follow(run_id)]
    assert [event.message for event in seen if isinstance(event, ToolProgress)] == ["asleep"]


async def test_a_tool_that_goes_away_leaves_the_catalogue(client: Client, stack: Stack) -> None:
    """An entry lives as long as somebody serves the tool, and comes back with it."""
    stack.kill("table-1")

    async def gone() -> bool:
        return "analyze_table" not in {spec.name for spec in await client.tools()}

    await wait_until(gone, timeout=30, what="the tool to leave the catalogue")
    stack.spawn("table-1")

    async def back() -> bool:
        return not await gone()

    await wait_until(back, timeout=15, what="the tool to come back")
