"""Runs whose logs and queues hold answers of the server, stored by somebody who may read a stream."""

import asyncio
from typing import Any

from structlog.testing import capture_logs

from contracts.runs.inbox import CallFinished, CancelRequested
from contracts.tools.messages import CallRequested, ToolSpec
from contracts.wire import subjects
from tests.planner.conftest import Plan
from tests.support.forgeries import forge_end, forge_in_queue
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.waiting import wait_until

SLOW = ToolSpec(name="slow", description="Wait", input_schema={"type": "object"})


async def test_a_run_ends_as_it_would_have(plan: Plan, provider: ModelServer) -> None:
    """A forged end during a tool call and during a reply: neither is cut off, and the planner's next write is taken."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(_args: dict[str, Any]) -> str:
        begun.set()
        await go.wait()
        return "waited"

    planning = await plan({"slow": (SLOW, slow)})
    provider.say(action("slow"), Say(text=answer("as it was").text, stall_after=2))
    with capture_logs() as logged:
        run = await planning.ask()
        following = asyncio.create_task(planning.ended(run))
        await begun.wait()
        await asyncio.sleep(0.3)  # From then on the tool runner watches the run.
        forged = [await forge_end(planning.bus, run), await forge_end(planning.bus, run)]
        go.set()
        await wait_until(lambda: len(provider.ledger) == 2, what="the model is asked again")
        forged.append(await forge_end(planning.bus, run))
        provider.release()
        story = await following

    assert story.end.raw_answer == "as it was"
    assert story.of("observed")[0].observation == "waited"
    assert (await planning.ended(run)).facts() == story.facts()
    ignored = {(each["run_id"], each["sequence"]) for each in logged if each["event"] == "forged_message_ignored"}
    assert ignored == {(run, sequence) for sequence in forged}


async def test_a_forged_outcome_is_removed(plan: Plan, provider: ModelServer) -> None:
    """The planner waits for the true one; a forged cancel has no effect either."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(_args: dict[str, Any]) -> str:
        begun.set()
        await go.wait()
        return "true"

    planning = await plan({"slow": (SLOW, slow)})
    provider.say(action("slow"), answer("done"))
    run = await planning.ask()
    following = asyncio.create_task(planning.ended(run))
    await begun.wait()
    call = await planning.bus.last(subjects.CALLS, subjects.call("default", run, "slow"))
    assert call is not None
    call_id = CallRequested.model_validate_json(call.data).call_id
    outcome = CallFinished(call_id=call_id, tool="slow", status="succeeded", observation="forged")
    inbox, control = subjects.inbox("default", run, call_id), subjects.control("default", run, "cancel")
    cancel = CancelRequested(reason="forged").model_dump_json().encode()
    with capture_logs() as logged:
        await forge_in_queue(planning.bus, inbox, outcome.model_dump_json().encode())
        await forge_in_queue(planning.bus, control, cancel)

        def removed() -> set[str]:
            return {each["subject"] for each in logged if each["event"] == "forged_message_removed"}

        await wait_until(lambda: removed() == {inbox, control}, what="both are removed")
    go.set()
    story = await following
    assert (story.of("observed")[0].observation, story.end.raw_answer) == ("true", "done")
