"""Any process may die at any moment. The run goes on where it was, and what has a side effect happens once."""

from runwire import Client
from runwire.events import Observed
from tests.support.stack import Stack
from tests.support.waiting import wait_until


async def test_a_planner_dies_while_a_run_waits(client: Client, stack: Stack) -> None:
    """A planner holds nothing that matters: another one (here the same, restarted) reads the log and goes on."""
    run_id = await client.start("Take a nap of 3 seconds")
    async for event in client.follow(run_id):
        if event.type == "tool_progress":
            break
    stack.kill("planner-1")
    stack.spawn("planner-1")
    run = await client.result(run_id)
    assert run.status == "done"
    assert run.payload is not None
    assert "slept 3" in run.payload.raw_answer


async def test_a_side_effect_happens_once_though_the_tool_runner_dies(client: Client, stack: Stack) -> None:
    """The next tool runner asks the tool whether it holds the call, instead of calling it again."""
    run_id = await client.start("Post a postcard to the recipient 'archive'")
    book = stack.folder / "postcards"
    await wait_until(
        lambda: book.exists() and run_id in book.read_text(encoding="utf-8"), what="the postcard to be posted"
    )
    stack.kill("tool_runner-1")
    stack.spawn("tool_runner-1")
    run = await client.result(run_id)
    assert run.status == "done"
    assert run.payload is not None
    assert "posted to archive" in run.payload.raw_answer
    posted = book.read_text(encoding="utf-8").splitlines()
    assert len([line for line in posted if line.startswith(run_id)]) == 1


async def test_a_call_whose_tool_dies_is_not_repeated(client: Client, stack: Stack) -> None:
    """The tool is not idempotent: it may have done its work or not. The model reads that the outcome is unknown."""
    run_id = await client.start("Post a postcard to the recipient 'attic'")
    book = stack.folder / "postcards"
    await wait_until(
        lambda: book.exists() and run_id in book.read_text(encoding="utf-8"), what="the postcard to be posted"
    )
    stack.kill("tools-1")
    stack.spawn("tools-1")
    outcomes = [event async for event in client.follow(run_id) if isinstance(event, Observed)]

    assert [outcome.failure and outcome.failure.code for outcome in outcomes] == ["outcome_unknown"]
    posted = book.read_text(encoding="utf-8").splitlines()
    assert len([line for line in posted if line.startswith(run_id)]) == 1


async def test_a_call_that_may_be_repeated_is_taken_over(client: Client, stack: Stack) -> None:
    """The tool is idempotent: when its process dies, another one does the work. The run notices nothing."""
    run_id = await client.start("Take a nap of 2 seconds")
    async for event in client.follow(run_id):
        if event.type == "tool_progress":
            break
    stack.kill("tools-1")
    stack.spawn("tools-1")
    run = await client.result(run_id)
    assert run.status == "done"
    assert run.payload is not None
    assert "slept 2" in run.payload.raw_answer
