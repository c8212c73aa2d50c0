"""Any process may die at any moment. The run goes on where it was, and what has a side effect happens once."""

from runwire import Client
from runwire.events import Observed
from tests.fundamentals.conftest import answer_in, noted, restart, until
from tests.support.stack import Stack
from tests.support.waiting import wait_until


async def test_a_planner_dies_while_a_run_waits(client: Client, stack: Stack) -> None:
    """A planner holds nothing that matters: another one (here the same, restarted) reads the log and goes on."""
    await nap_while_a_process_dies(client, stack, "planner-1")


async def test_a_side_effect_happens_once_though_the_tool_runner_dies(client: Client, stack: Stack) -> None:
    """The next tool runner asks the tool whether it holds the call, instead of calling it again."""
    run_id = await post_while_a_process_dies(client, stack, "archive", "tool_runner-1")
    run = await client.result(run_id)
    assert run.status == "done"
    assert "posted to archive" in answer_in(run)
    assert len(noted(stack, "postcards", run_id)) == 1


async def test_a_call_whose_tool_dies_is_not_repeated(client: Client, stack: Stack) -> None:
    """The tool is not idempotent: it may have done its work or not. The model reads that the outcome is unknown."""
    run_id = await post_while_a_process_dies(client, stack, "attic", "tools-1")
    outcomes = [event async for event in client.follow(run_id) if isinstance(event, Observed)]

    assert [outcome.failure and outcome.failure.code for outcome in outcomes] == ["outcome_unknown"]
    assert len(noted(stack, "postcards", run_id)) == 1


async def test_a_call_that_may_be_repeated_is_taken_over(client: Client, stack: Stack) -> None:
    """The tool is idempotent: when its process dies, another one does the work. The run notices nothing."""
    await nap_while_a_process_dies(client, stack, "tools-1")


async def nap_while_a_process_dies(client: Client, stack: Stack, name: str) -> None:
    """Kill and restart a process while the tool works. The run ends as if nothing had happened."""
    run_id = await client.start("Take a nap of 2 seconds")
    await until(client, run_id, "tool_progress")
    restart(stack, name)
    run = await client.result(run_id)
    assert run.status == "done"
    assert "slept 2" in answer_in(run)


async def post_while_a_process_dies(client: Client, stack: Stack, recipient: str, name: str) -> str:
    """Kill and restart a process after the postcard was posted and before the tool replies. Returns the run."""
    run_id = await client.start(f"Post a postcard to the recipient '{recipient}'")
    await wait_until(lambda: noted(stack, "postcards", run_id), what="the postcard to be posted")
    restart(stack, name)
    return run_id
