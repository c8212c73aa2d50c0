"""Runs and planners that are stopped: what listeners saw, never the raw data of a tool, and who goes on."""

from typing import Any

import pytest
from nats.aio.msg import Msg

from contracts.runs.events import Chunk
from contracts.runs.inbox import CancelRequested
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from services.messaging.pull_consumer import Delivered, Delivery
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, answer, words
from tests.support.run_services import Handler, Planning
from tests.support.waiting import wait_until


async def rows(_: dict[str, Any]) -> Any:
    """Data without a text."""
    return {"rows": [{"id": 1, "secret": "CANARY"}]}


ROWS: dict[str, tuple[ToolSpec, Handler]] = {"rows": (ToolSpec(name="rows", idempotent=True), rows)}


async def cancel(planning: Planning, run: str) -> None:
    body = CancelRequested(reason="enough").model_dump_json().encode()
    await planning.bus.publish(subjects.control("default", run, "cancel-1"), body)


@pytest.mark.parametrize("number", range(3))
async def test_a_cancelled_answer_is_what_was_shown(plan: Plan, provider: ModelServer, number: int) -> None:
    """Character by character, although the model goes on writing meanwhile."""
    planning = await plan()
    provider.say(Say(text=answer(words(8_000)).text, piece=40, pause_s=0.0005, stall_after=1_500))
    run = await planning.ask(f"Stop {number}")
    await planning.until(run, lambda event: isinstance(event, Chunk) and event.seq >= number)
    await cancel(planning, run)
    story = await planning.ended(run)
    assert story.end.type == "cancelled"
    shown = "".join(chunk.text for chunk in story.chunks())
    assert shown
    assert words(8_000).startswith(shown)
    assert story.end.payload.raw_answer == shown
    assert story.facts() == ["run_started", "asked", "stopping", "cancelled"]


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
    late = Delivery(message, Delivered(stream, 1, int(sequence), 0))
    assert planning.planner is not None
    assert await planning.planner.on_message(late) is False
    story = await planning.ended(run)
    assert story.facts()[:5] == ["run_started", "asked", "model_failed", "redelivered", "asked"]
    assert [each.by for each in story.of("asked")] != [asked.by] * 2
