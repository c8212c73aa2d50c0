"""Runs whose logs and queues hold answers of the server, stored by somebody who may read a stream."""

import asyncio
from typing import Any

from structlog.testing import capture_logs

from contracts.tools.messages import ToolSpec
from tests.planner.conftest import Plan
from tests.support.forgeries import forge_end
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
