"""Inputs over HTTP, with a real planner: what is read, what is refused, and a flood."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from contracts.runs.pauses import MAX_UNREAD_INPUTS
from tests.support.gateways import Served, serving
from tests.support.model_server import ModelServer, Say, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import planning
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)
FLOOD = 200


@pytest.fixture
async def served(own_nats_server: NatsServer, provider: ModelServer) -> AsyncIterator[Served]:
    """A gateway with a planner."""
    async with serving(own_nats_server.url) as gateway, planning(own_nats_server.url, provider):
        yield gateway


async def test_a_flood_of_inputs_is_bounded_and_what_was_taken_is_read(served: Served, provider: ModelServer) -> None:
    """Up to 64 wait for the model; the others are refused, and told when to come back."""
    first = answer("First.")
    provider.say(Say(text=first.text, stall_after=3), answer("Second."))
    accepted = (await served.http.post("/v1/runs", json={"query": "Why?"})).json()
    url = accepted["url"]
    await wait_until(lambda: provider.ledger, what="the model is called")
    slots = asyncio.Semaphore(20)

    async def add(number: int) -> int:
        async with slots:
            answered = await served.http.post(f"{url}/input", json={"text": f"text {number}."})
        assert answered.status_code == 200 or "retry-after" in answered.headers, answered.text
        return answered.status_code

    taken = await asyncio.gather(*(add(number) for number in range(FLOOD)))
    assert Counter(taken) == {200: MAX_UNREAD_INPUTS, 429: FLOOD - MAX_UNREAD_INPUTS}
    provider.release()
    await wait_until(lambda: ended(served, url), what="the run has ended")
    late = await served.http.post(f"{url}/input", json={"text": "late"})
    assert (late.status_code, late.json()["code"]) == (409, "run_ended")
    assert (await served.http.get(url)).json()["payload"]["raw_answer"] == "Second."
    read = provider.ledger[-1].text
    assert [f"text {number}." in read for number in range(FLOOD)] == [status == 200 for status in taken]


async def ended(served: Served, url: str) -> bool:
    """Whether the run has ended."""
    return (await served.http.get(url)).json()["ended_at"] is not None
