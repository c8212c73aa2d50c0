"""A planner is killed while a run waits for a provider: the wait continues from its recorded time."""

import pytest

from services.messaging.connection import Bus
from tests.support.model_server import Say, answer
from tests.support.waiting import wait_until
from tests.system.checker import retries_when_the_wait_is_over
from tests.system.client import Client
from tests.system.evidence import records
from tests.system.system import System
from tests.system.traces import RunEvidence, StoredRecord

#: Seconds in which another planner has the message, after the wait is over.
SOON_S = 8


async def _log(bus: Bus, run: str) -> list[StoredRecord]:
    return [record for record in await records(bus, run) if record.kind == "log"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("pause_s", [2, 8])
async def test_a_kill_in_a_wait_neither_repeats_nor_restarts_it(
    system: System, client: Client, bus: Bus, pause_s: int
) -> None:
    """A short wait is taken over by the planner that gets the message next; a long one is a timer of the server."""
    query = f"a provider that wants {pause_s} s"
    system.model.say(Say(status=429, headers={"retry-after": str(pause_s)}), answer("at last"), marker=query)
    run = await client.ask(query, key=f"waits-{pause_s}")

    async def has_failed() -> bool:
        return any(event["type"] == "model_failed" for record in await _log(bus, run) for event in record.events)

    await wait_until(has_failed, what="the request has failed")
    [first] = [seen for seen in system.model.ledger if query in seen.text]
    system.stack.kill(system.planner_of(first.headers["authorization"]))
    end = await client.follow(run, [])
    assert (end["type"], end["raw_answer"], end["usage"]["model_calls"]) == ("done", "at last", 2)
    log = await _log(bus, run)
    asked = [event for record in log for event in record.events if event["type"] == "asked"]
    assert [(event["attempt"], event["cause"]) for event in asked] == [(1, "turn"), (2, "provider")]
    assert not list(retries_when_the_wait_is_over(RunEvidence(run, records=log)))
    [_, second] = [seen for seen in system.model.ledger if query in seen.text]
    assert pause_s <= second.at - first.at < pause_s + SOON_S
