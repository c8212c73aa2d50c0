"""A tenant that has as many runs open as it may takes neither the planner nor a tool from another."""

from contracts.wire import subjects
from tests.support.model_server import ModelServer, Say, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning
from tests.support.waiting import wait_until

SLOTS = 8
CROWD = 20


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
