"""Runs and planners that are stopped: what listeners saw, never the raw data of a tool, and who goes on."""

from nats.aio.msg import Msg

from contracts.wire import subjects
from services.messaging.pull_consumer import Delivery
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, answer
from tests.support.waiting import wait_until


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
