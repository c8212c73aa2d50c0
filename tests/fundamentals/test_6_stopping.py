"""A run can be stopped by a person and by a budget. Either way it ends once, with a payload."""

import asyncio
import time

import httpx

from runwire import Client
from runwire.events import Chunk
from tests.fundamentals.conftest import answer_in, until
from tests.support.model_server import ModelServer, Say, action, answer, words


async def test_cancel_ends_a_run_at_once(client: Client) -> None:
    """Also while a tool works; nothing is called afterwards."""
    run_id = await client.start("Take a nap of 50 seconds")
    await until(client, run_id, "tool_progress")
    began = time.monotonic()
    await client.cancel(run_id, "had enough")
    run = await client.result(run_id)

    assert run.status == "cancelled"
    assert run.payload is not None
    assert time.monotonic() - began < 5


async def test_a_cancelled_answer_is_what_was_shown(client: Client, model: ModelServer) -> None:
    """The payload has exactly the text that listeners have seen."""
    model.say(Say(text=answer(words(500)).text, pause_s=0.02))
    run_id = await client.start("Tell me a long story", agent="scripted")
    await until(client, run_id, "chunk")
    await client.cancel(run_id)
    seen = [event async for event in client.follow(run_id)]
    run = await client.status(run_id)

    shown = "".join(event.text for event in seen if isinstance(event, Chunk))
    assert answer_in(run) == shown
    assert words(500).startswith(shown)
    assert 0 < len(shown) < len(words(500))


async def test_a_deadline_ends_a_run_with_what_there_is(client: Client) -> None:
    """What ran out is named in the warnings; the route says that the answer is partial."""
    run_id = await client.start("Take a nap of 50 seconds", limits={"deadline_s": 1})
    run = await asyncio.wait_for(client.result(run_id), 20)

    assert (run.status, run.reason) == ("done", "budget_exhausted")
    assert run.payload is not None
    assert run.payload.route == "partial"
    assert any("deadline_s" in warning for warning in run.payload.warnings)


async def test_a_budget_is_checked_before_it_is_spent(client: Client, model: ModelServer) -> None:
    """The second call is not made: the run ends with the result of the first one."""
    model.say(action("count_inhabitants", city="Lisbon"), action("count_inhabitants", city="Porto"))
    run = await client.chat("Count them all", agent="scripted", limits={"max_tool_calls": 1})

    assert (run.status, run.reason) == ("done", "budget_exhausted")
    assert run.usage is not None
    assert run.usage.tool_calls == 1
    assert run.payload is not None
    assert "Lisbon" in run.payload.raw_answer
    assert any("max_tool_calls" in warning for warning in run.payload.warnings)


async def test_a_run_with_grace_waits_for_more_budget(
    client: Client, http: httpx.AsyncClient, model: ModelServer
) -> None:
    """It is paused, says what it waits for, and goes on where it was when the budget is topped up."""
    model.say(action("count_inhabitants", city="Lisbon"), answer("545,796"))
    run_id = await client.start("How many?", agent="scripted", limits={"max_steps": 1, "grace_s": 60})
    await until(client, run_id, "paused")
    assert "max_steps" in ((await client.status(run_id)).paused or "")

    topped_up = await http.post(f"/v1/runs/{run_id}/top-up", json={"limits": {"max_steps": 1}})
    assert topped_up.status_code == 202
    seen = [event async for event in client.follow(run_id)]

    types = [event.type for event in seen]
    assert types.index("paused") < types.index("topped_up") < types.index("resumed") < types.index("done")
    run = await client.status(run_id)
    assert (run.reason, run.payload and run.payload.raw_answer) == ("answer_complete", "545,796")
    assert types.count("observed") == 1, "what was done before the pause is not done again"


async def test_a_deadline_can_be_topped_up_too(client: Client, http: httpx.AsyncClient) -> None:
    """The seconds count from the top-up; the nap that was under way is not taken again."""
    run_id = await client.start("Take a nap of 2 seconds", limits={"deadline_s": 1, "grace_s": 60})
    await until(client, run_id, "paused")
    await http.post(f"/v1/runs/{run_id}/top-up", json={"limits": {"deadline_s": 60}})
    run = await client.result(run_id)
    assert (run.status, run.reason) == ("done", "answer_complete")


async def test_grace_ends_where_nobody_comes(client: Client, model: ModelServer) -> None:
    """Then the run ends as it would have ended without it."""
    model.say(action("count_inhabitants", city="Lisbon"))
    run = await client.chat("How many?", agent="scripted", limits={"max_steps": 1, "grace_s": 0.5})
    assert (run.status, run.reason) == ("done", "budget_exhausted")
