"""Two runs of a session, and a planner that is killed between any two steps: another one finishes what it began."""

from typing import Any

import pytest

from contracts.runs.requests import RunRequested
from contracts.sessions.records import SessionDeletionRequested
from contracts.wire import subjects
from contracts.wire.names import new_id, unix_ms
from services.messaging.connection import Bus
from services.planner.logs.session_log import SessionAddress
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, Say, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning
from tests.support.session_logs import events_of, idle, is_queued, session_of
from tests.support.waiting import wait_until

A, B = "a" * 32, "b" * 32
ACK_WAIT_S = 1.0
"""Of the planner that goes on: what the dead one had received is delivered again after it."""
STEPS = {
    "the run's log says that it waits": ('"type":"queued"', "emit"),
    "the timer of its wait": ('"timer":"queue"', "timer"),
    "the session queues it": (f'"type":"run_queued","run":"{B}"', "emit"),
    "the session takes the end": (f'"type":"run_ended","run":"{A}"', "emit"),
    "the second run is notified to begin": ('"kind":"begin"', "inbox"),
}

TURNS = frozenset({"run_begun", "run_yielded", "run_ended"})


async def ask(bus: Bus, run: str, session_id: str, **more: Any) -> None:
    known = {"run_id": run, "tenant": "default", "requested_at": unix_ms(), "trace_id": run, "query": f"{run[0]}?"}
    request = RunRequested.model_validate(known | {"session_id": session_id} | more)
    await bus.publish(subjects.request("default", run), request.model_dump_json().encode(), {"Nats-Msg-Id": run})


@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", ["before", "known"])
@pytest.mark.parametrize("step", STEPS)
async def test_each_run_has_one_turn(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, step: str, moment: str
) -> None:
    """The second begins after the first has ended, and both questions are in the session, once."""
    url, session_id, (text, word) = own_nats_server.url, new_id(), STEPS[step]
    # The second request comes while the first run is at work, also on a machine with much else to do.
    provider.say(*(Say(text=answer("yes").text, delay_s=delay_s) for delay_s in (1.5, 1.5, 0.3, 0.3)))
    dying = DyingPlanner(url, provider.url, text, moment, word)
    await ask(client.bus, A, session_id)
    await wait_until(lambda: provider.ledger, what="the first run asks its model")
    await ask(client.bus, B, session_id)
    await dying.dead()
    async with planning(url, provider, ack_wait_s=ACK_WAIT_S):
        for run in (A, B):
            assert (await client.ended(run, 60)).end.raw_answer == "yes"
        session = await idle(client.bus, session_id)
    assert sorted(turn.run for turn in session.turns) == [A, B]
    events = [each for each in await events_of(client.bus, session_id) if each in {"run_begun", "run_ended"}]
    assert events == ["run_begun", "run_ended"] * 2


async def test_a_report_that_lost_its_turn_before_it_had_a_log(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer
) -> None:
    """It waits for its next turn, and then knows what was said meanwhile."""
    url, session_id = own_nats_server.url, new_id()
    provider.say(Say(text=answer("noon").text, stall_after=1), answer("a report"))
    dying = DyingPlanner(url, provider.url, '"type":"run_started"', "before")
    await ask(client.bus, A, session_id, cause="report")
    await dying.dead()
    await ask(client.bus, B, session_id)
    async with planning(url, provider):
        await wait_until(lambda: provider.ledger, what="the user's run asks its model")
        async with planning(url, provider, ack_wait_s=ACK_WAIT_S):  # Now the report's request is delivered again.
            await client.until(A, is_queued, 60)
            provider.release()
            for run, said in ((B, "noon"), (A, "a report")):
                assert (await client.ended(run, 60)).end.raw_answer == said
            await idle(client.bus, session_id)
    turns = [each for each in await events_of(client.bus, session_id) if each in TURNS]
    assert turns == ["run_begun", "run_yielded", "run_begun", "run_ended", "run_begun", "run_ended"]
    assert sorted((await client.ended(A)).facts()[:2]) == ["queued", "yielded"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "word"),
    [("deleting", "emit"), ('"kind":"cancel"', "control"), ("requested_at", "$KV"), ("deleted", "emit")],
)
async def test_a_deletion_is_finished(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, text: str, word: str
) -> None:
    """Whatever was done already."""
    url, session_id = own_nats_server.url, new_id()
    where = SessionAddress.of("default", session_id)
    provider.say(*(Say(silent=True) for _ in range(4)))
    dying = DyingPlanner(url, provider.url, text, "known", word)
    await ask(client.bus, A, session_id)
    await wait_until(lambda: provider.ledger, what="the run asks its model")
    body = SessionDeletionRequested().model_dump_json().encode()
    await client.bus.publish(subjects.session_inbox(*where, "delete"), body)
    await dying.dead()
    async with planning(url, provider, ack_wait_s=ACK_WAIT_S):
        assert (await client.ended(A, 60)).end.type == "cancelled"

        async def is_gone() -> bool:
            gone = not (await session_of(client.bus, session_id)).exists
            return gone and await events_of(client.bus, session_id) == ["deleted"]

        await wait_until(is_gone, what="the session is gone")
