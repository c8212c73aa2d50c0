"""A tool runner dies while the model reads on in an observation: another one reads, and the call is settled once."""

import asyncio
import json
from typing import Any

import pytest

from contracts.wire import subjects
from services.messaging.connection import Bus
from services.shared.tools.builtin import READ_ARTIFACT
from tests.support.model_server import Say, Seen, action, answer
from tests.support.waiting import wait_until
from tests.system import evidence
from tests.system.artifact_tools import essay
from tests.system.deployment import Whole

CHARACTERS = 60_000
LENGTH = 5_000
STORE, RUNNER = "artifact_store-1", "tool_runner-1"


def results(request: Seen) -> list[dict[str, Any]]:
    """What the model was shown of calls, oldest first."""
    lines = "\n".join(str(message["content"]) for message in request.body["messages"]).splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"call"')]


async def in_work(bus: Bus) -> bool:
    """Whether a tool runner holds a call that reads."""
    found = await bus.api(f"CONSUMER.INFO.{subjects.CALLS}.{subjects.calls_consumer(READ_ARTIFACT)}", {})
    return bool(found["num_ack_pending"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_tool_runner_dies_while_it_reads(whole: Whole, deaths: int) -> None:
    """The store stands still, so that the call is under way when its tool runner is killed, once and again."""

    def choose(request: Seen) -> Say:
        if request.turns == 0:
            return action("essay", characters=CHARACTERS)
        if request.turns == 1:
            whole.stack.freeze(STORE)
            artifact = results(request)[-1]["more"]["args"]["artifact_id"]
            return action(READ_ARTIFACT, artifact_id=artifact, offset=1000, length=LENGTH)
        return answer("Read.")

    whole.model.choose = choose
    async with evidence.connected(whole.nats) as bus:
        try:
            run = await whole.begin("Q-reads")
            for _ in range(deaths):
                await wait_until(lambda: in_work(bus), timeout=60, what="the call is under way")
                whole.stack.kill(RUNNER)
                whole.stack.spawn(RUNNER)
                await asyncio.to_thread(whole.stack.wait_ready, RUNNER)
            whole.stack.thaw(STORE)
            status = await whole.ended(run)
        finally:
            whole.stack.mend()
        events = [event for record in await evidence.records(bus, run) for event in record.events]

    assert (status["status"], status["payload"]["raw_answer"]) == ("done", "Read.")
    (observed,) = (event for event in events if event["type"] == "observed" and event["tool"] == READ_ARTIFACT)
    assert observed["status"] == "succeeded", observed["failure"]
    text = (await essay(characters=CHARACTERS))[1000 : 1000 + LENGTH]
    assert observed["observation"]["text"] == text
    assert results(whole.model.ledger[-1])[-1]["observation"]["text"] == text
    steps = [event for event in events if event["type"] == "step" and event["node"] == READ_ARTIFACT]
    assert [event["status"] for event in steps].count("started") == 1
