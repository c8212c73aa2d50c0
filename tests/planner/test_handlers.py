"""How messages are handled: delivered late, among forged ones, and while a tenant has as many runs as it may have."""

import asyncio
from typing import Any

from nats.aio.msg import Msg
from structlog.testing import capture_logs

from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from services.messaging.pull_consumer import Delivery
from tests.planner.conftest import Plan
from tests.support.forgeries import forge_end
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning
from tests.support.waiting import wait_until

SLOTS, CROWD = 8, 20


async def test_a_first_delivery_that_begins_late_leaves_what_was_acknowledged(
    plan: Plan, provider: ModelServer
) -> None:
    """Its process was stopped, and another one has the run. If this one went on and died, nobody else would."""
    planning = await plan()
    provider.say(Say(status=429, headers={"Retry-After": "3"}), answer("At last."))
    run = await planning.ask()
    subject = subjects.request("default", run)
    story = await planning.until(run, lambda event: event.type == "model_failed")
    (started,) = story.of("run_started")
    (asked,) = story.of("asked")

    async def is_acknowledged() -> bool:
        return await planning.bus.last_from_leader(subjects.REQUESTS, subject) is None

    await wait_until(is_acknowledged, what="the request is acknowledged")
    stream, _, sequence = asked.by.partition(":")
    message = Msg(planning.bus.nc, subject, "", started.request.model_dump_json().encode())
    late = Delivery(message, (stream, 1, int(sequence), 0))
    assert planning.planner is not None
    assert await planning.planner.on_message(late) is False
    story = await planning.ended(run)
    assert story.facts()[:5] == ["run_started", "asked", "model_failed", "redelivered", "asked"]
    assert [each.by for each in story.of("asked")] != [asked.by] * 2


async def test_a_run_ends_as_it_would_have(plan: Plan, provider: ModelServer) -> None:
    """A forged end during a tool call and during a reply: neither is cut off, and the planner's next write is taken."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(_args: dict[str, Any]) -> str:
        begun.set()
        await go.wait()
        return "waited"

    planning = await plan({"slow": (ToolSpec(name="slow"), slow)})
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


async def _all_ended(planner: Planning, tenant: str) -> bool:
    """Whether no request waits, and no timer of a run is left."""
    for stream, pattern in (
        (subjects.REQUESTS, subjects.request.pattern(tenant=tenant)),
        (subjects.TIMERS, subjects.timer.pattern(tenant=tenant)),
    ):
        if (await planner.bus.api(f"STREAM.INFO.{stream}", {"subjects_filter": pattern}))["state"].get("subjects"):
            return False
    return True


async def test_hanging_models_of_one_tenant_do_not_delay_another(own_nats_server: NatsServer) -> None:
    """They are more than there are slots. Those that wait are not lost: they go on as others end."""
    with ModelServer() as model:
        model.say(Say(silent=True), marker="say nothing")
        model.say(answer("Yes."), marker="one word")
        async with planning(own_nats_server.url, model, planner_slots=SLOTS, planner_request_slots=SLOTS) as planner:
            for _ in range(CROWD):
                await planner.ask("say nothing", tenant="crowd", limits={"deadline_s": 3600})
            await wait_until(lambda: len(model.ledger) > SLOTS // 2, what="the crowd has its share")
            for _ in range(3):
                assert (await planner.tell("one word")).end.raw_answer == "Yes."
            waiting = [seen for seen in model.ledger if "say nothing" in seen.text]
            assert len(waiting) == SLOTS // 2 + 1
            model.release()
            await wait_until(lambda: _all_ended(planner, "crowd"), timeout=60, what="all runs of the crowd have ended")
