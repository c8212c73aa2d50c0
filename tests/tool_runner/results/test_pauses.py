"""A tool pauses its call to ask a person: what is accepted, and what the run is sent."""

import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.runs.events import CallStarted
from contracts.runs.inbox import CallPaused
from contracts.runs.pauses import PauseAnswer
from contracts.tools.messages import REPLY_HEADER, ToolCall, ToolSpec
from contracts.wire import subjects
from services.tool_runner.errors import InvalidPause
from services.tool_runner.results.outcomes import paused, read_pause
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Start, call_requested

CALL = call_requested("book")
ONE = PauseAnswer(number=0, decision="answer", input="window")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"number": 1}, "its number is 1"),
        ({"title": "x" * 201}, "title"),
        ({"reason": "boredom"}, "reason"),
        ({"reason": "budget"}, "only a run waits for a budget"),
        ({"state": {"notes": "x" * 32_768}}, "`state` has"),
        ({"input_schema": {"type": "colour"}}, "`input_schema` cannot be used"),
        ({"input_schema": {"type": "string"}, "default": "answer", "default_answer": 3}, "`default_answer`"),
        ({"expires_in_s": 0}, "expires_in_s"),
        ({"default": "approve"}, "default"),
        ({"payload": json.loads("[" * 120 + "]" * 120)}, "too deep"),
    ],
)
def test_a_pause_that_cannot_be_used_is_refused_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    """For the author of the tool."""
    with pytest.raises(InvalidPause, match=reason) as refused:
        read_pause(CALL, json.dumps({"number": 0, **fields}).encode())
    assert "the pause of book cannot be used" in refused.value.fault().reason


def test_a_pause_expires_after_a_week_unless_it_says_so_and_after_a_year_at_most() -> None:
    """Its default answer is dropped when the default is to reject."""

    def expiry(**fields: Any) -> CallPaused:
        reply = read_pause(CALL, json.dumps({"number": 0, **fields}).encode())
        return CallPaused.model_validate_json(paused(CALL, reply, None))

    assert expiry().expires_in_s == 7 * 86_400
    assert expiry(expires_in_s=60).expires_in_s == 60
    assert expiry(expires_in_s=1e12).expires_in_s == 365 * 86_400
    assert expiry(default_answer="window").default_answer is None
    assert expiry(default="answer", default_answer="window").default_answer == "window"


async def test_a_pause_ends_the_round_and_the_next_one_brings_the_answer(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """Call id and idempotency key stay; each round of a call that is not idempotent has a start of its own."""
    calls: list[ToolCall] = []

    async def ask(message: Msg) -> None:
        calls.append(ToolCall.model_validate_json(message.data))
        if calls[-1].answers:
            await message.respond(json.dumps(calls[-1].answers[0].input).encode())
        else:
            pause = {"number": 0, "title": "Which seat?", "state": {"offer": 7}}
            await client.publish(message.reply, json.dumps(pause).encode(), headers={REPLY_HEADER: "pause"})

    await client.subscribe(subjects.tool("book"), "book", cb=ask)
    await start_runner(ToolSpec(name="book"))
    run = await planner.request("book", {})
    body = await wait_until(lambda: planner.inbox(run, "1-0-p0"), what="the pause is in the inbox")
    paused = CallPaused.model_validate_json(body)
    assert (paused.title, paused.state, paused.round, paused.reason) == ("Which seat?", {"offer": 7}, 0, "input")
    await planner.acknowledged("book")

    await planner.request("book", {}, run=run, round=1, answers=[ONE], state=paused.state)
    assert (await planner.outcome(run, "1-0-r1")).observation == "window"

    first, second = calls
    assert (first.round, first.state, first.understands_pause) == (0, {}, True)
    assert (second.round, second.state, second.answers) == (1, {"offer": 7}, [ONE])
    assert (first.call_id, first.idempotency_key) == (second.call_id, second.idempotency_key)
    started = [event for event in await planner.shown(run) if isinstance(event, CallStarted)]
    assert [event.round for event in started] == [0, 1]
