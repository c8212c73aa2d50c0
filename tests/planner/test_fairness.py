"""A tenant that has as many runs open as it may takes neither the planner nor a tool from another."""

import asyncio
from typing import Any

from contracts.runs.requests import RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from contracts.wire.names import new_id, unix_ms
from services.messaging.connection import Bus
from services.messaging.streams.provision import provision
from tests.support.buses import connected
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning, tools_at_work
from tests.support.waiting import wait_until

SLOTS = 8
CROWD = 20
BURST = 300
MAX_TURNS_BEFORE = 32
"""Sixteen turns are under way when the other run arrives. Twice that, as messages are read while turns end."""
SLOW = ToolSpec(
    name="slow",
    description="Wait, then return.",
    input_schema={"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
    output_schema={"type": "object"},
    idempotent=True,
    concurrency=4,
)


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


async def request_run(bus: Bus, query: str, tenant: str) -> None:
    """Store the request for a run, as a gateway does."""
    run = new_id()
    requested = RunRequested(run_id=run, tenant=tenant, requested_at=unix_ms(), trace_id=new_id(), query=query)
    await bus.publish(subjects.request(tenant, run), requested.model_dump_json().encode(), {"Nats-Msg-Id": run})


async def test_many_new_runs_of_one_tenant_delay_another_by_some_turns(own_nats_server: NatsServer) -> None:
    """They were all requested before. Counted in requests to the model, each of which a begun run needs."""
    with ModelServer() as model:
        model.say(answer("Yes."), marker="asked by many")
        model.say(answer("Yes."), marker="asked by one")
        async with connected(own_nats_server.url) as bus:
            await provision(bus)
            for query, tenant in [*[("asked by many", "crowd")] * BURST, ("asked by one", "default")]:
                await request_run(bus, query, tenant)
        async with planning(own_nats_server.url, model) as planner:
            await wait_until(
                lambda: _all_ended(planner, "default"), timeout=60, what="the other tenant's run has ended"
            )
            await wait_until(lambda: _all_ended(planner, "crowd"), timeout=60, what="all runs of the crowd have ended")
    is_other = ["asked by one" in seen.text for seen in model.ledger]
    assert len(is_other) == BURST + 1
    assert is_other.index(True) <= MAX_TURNS_BEFORE


async def test_slow_calls_of_one_tenant_do_not_hold_up_another(own_nats_server: NatsServer) -> None:
    """While both call a tool, one place of four stays free; and at last all calls are done."""
    go_on, working = asyncio.Event(), 0

    async def slow(args: dict[str, Any]) -> dict[str, Any]:
        nonlocal working
        if args["who"] == "crowd":
            working += 1
            await go_on.wait()
        return {}

    with ModelServer() as model:
        for who in ("crowd", "other"):
            model.by_turn(action("slow", who=who), answer("Yes."), marker=f"call for {who}")
        async with (
            planning(own_nats_server.url, model) as planner,
            tools_at_work(planner, own_nats_server.url, {"slow": (SLOW, slow)}),
        ):
            assert (await planner.tell("call for other")).end.raw_answer == "Yes."
            for _ in range(CROWD):
                await planner.ask("call for crowd", tenant="crowd", limits={"deadline_s": 3600})
            await wait_until(lambda: working == 3, what="the crowd has its share of the tool")
            for _ in range(3):
                assert (await planner.tell("call for other")).end.raw_answer == "Yes."
            assert working == 3
            go_on.set()
            await wait_until(lambda: _all_ended(planner, "crowd"), timeout=60, what="all runs of the crowd have ended")
            assert working == CROWD
