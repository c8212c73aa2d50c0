"""A call that needs an approval is executed when a person has approved it, as that person saw it, and never before."""

import json

import httpx
import nats
import pytest

from contracts.wire.names import new_id, unix_ms
from runwire import Client, RunwireError
from runwire.client import OpenPause
from runwire.errors import IdempotencyConflict, PauseChanged, PauseClosed, RunAlreadyEnded
from runwire.events import Observed
from tests.fundamentals.conftest import answer_in, noted
from tests.support.buses import processed
from tests.support.model_server import ModelServer, action, answer
from tests.support.nats_server import NatsServer
from tests.support.stack import Stack
from tests.support.waiting import wait_until

PAY = action("pay", euros=500)


async def paying(
    client: Client, *, agent: str = "scripted", session: str | None = None, user: str | None = None
) -> OpenPause:
    """Start a run that wants to pay, and return what it waits for."""
    run = await client.chat("Pay the invoice", agent=agent, session_id=session, user_id=user)
    [pause] = run.pauses
    return pause


def paid(stack: Stack, run_id: str) -> list[int]:
    """The amounts that a run has paid."""
    return [int(line.split()[-1]) for line in noted(stack, "payments", run_id)]


async def failures(client: Client, run_id: str) -> list[str | None]:
    """Follow a run to its end, and return why each of its calls failed; None: it did not."""
    seen = [event async for event in client.follow(run_id) if isinstance(event, Observed)]
    return [event.failure.code if event.failure else None for event in seen]


async def test_nothing_is_paid_before_a_person_approves(client: Client, model: ModelServer, stack: Stack) -> None:
    """The person sees the call with its arguments, and the call is executed once."""
    model.say(PAY, answer("Paid."))
    pause = await paying(client)
    assert (pause.reason, pause.tool, pause.arguments) == ("approval", "pay", {"euros": 500})
    assert paid(stack, pause.run_id) == []

    await client.approve(pause)
    run = await client.result(pause.run_id)
    assert answer_in(run) == "Paid."
    assert paid(stack, pause.run_id) == [500]


async def test_chat_answers_with_what_waits(client: Client, http: httpx.AsyncClient, model: ModelServer) -> None:
    """With 202, so no connection stays open while a person thinks. The session names it as well."""
    model.say(PAY, answer("Not paid."))
    session = new_id()
    body = {"query": "Pay the invoice", "agent": "scripted", "session_id": session}
    response = await http.post("/chat", json=body)
    assert response.status_code == 202
    [pause] = [OpenPause.model_validate(each) for each in response.json()["pauses"]]

    async def is_named() -> bool:
        return [each.token for each in (await client.session(session)).pauses] == [pause.token]

    await wait_until(is_named, what="the session names what waits")
    await client.reject(pause)


async def test_an_edit_runs_what_was_edited(client: Client, model: ModelServer, stack: Stack) -> None:
    """Arguments that the tool does not take are refused, and the question stays. The model learns of the change."""
    model.say(PAY, answer("Paid a part."))
    pause = await paying(client)
    with pytest.raises(RunwireError, match="invalid_input"):
        await client.edit(pause, {"euros": 5_000})
    await client.edit(pause, {"euros": 50})
    assert await failures(client, pause.run_id) == [None]
    assert paid(stack, pause.run_id) == [50]
    assert "A person changed the arguments of pay" in model.ledger[1].text


async def test_a_rejection_reaches_the_model_with_its_note(client: Client, model: ModelServer, stack: Stack) -> None:
    """The run goes on with it, as with any call that failed."""
    model.say(PAY, answer("I did not pay."))
    pause = await paying(client)
    await client.reject(pause, note="the invoice is a forgery")
    assert await failures(client, pause.run_id) == ["rejected"]
    assert "the invoice is a forgery" in model.ledger[1].text
    assert paid(stack, pause.run_id) == []


async def test_branches_of_a_plan_are_decided_one_by_one(client: Client, model: ModelServer, stack: Stack) -> None:
    """One branch needs no approval and runs at once; of the others each is as its own decision says."""
    steps = [{"node": "pay", "args": {"euros": 1}}, {"node": "pay", "args": {"euros": 2}}]
    model.say(action("plan", steps=[*steps, {"node": "count_inhabitants", "args": {"city": "Porto"}}]), answer("Done."))
    run_id = await client.start("Pay both", agent="scripted")

    async def both_wait() -> list[OpenPause]:
        found = await client.pauses(run_id)
        return found if len(found) == 2 else []

    first, second = await wait_until(both_wait, what="two calls wait")
    await client.reject(first)
    await client.approve(second)
    assert sorted(map(str, await failures(client, run_id))) == ["None", "None", "rejected"]
    assert paid(stack, run_id) == [(second.arguments or {})["euros"]]


async def test_once_per_session(client: Client, model: ModelServer, stack: Stack, session: str) -> None:
    """A rule may say so: the approval covers later calls of this tool and user in the session, and in no other one."""
    model.say(PAY, action("pay", euros=5), answer("Paid."), action("pay", euros=6), answer("Paid."))
    model.say(PAY, answer("No."), PAY, answer("No."))
    pause = await paying(client, agent="trusting", session=session)
    assert pause.rule == "payments"
    await client.approve(pause)
    await client.result(pause.run_id)
    second = await client.chat("Pay once more", agent="trusting", session_id=session)
    assert paid(stack, pause.run_id) + paid(stack, second.run_id) == [500, 5, 6]

    another = await paying(client, agent="trusting", session=session, user="another")
    await client.reject(another)
    await client.result(another.run_id)
    await client.reject(await paying(client, agent="trusting"))


async def test_a_decision_counts_once(client: Client, model: ModelServer, stack: Stack) -> None:
    """A token says what the person saw: an altered one is refused, and so is one that was used. A repetition is not."""
    model.say(PAY, action("take_nap", seconds=5), answer("Paid."))
    pause = await paying(client)
    other = "0" if pause.token[-1] != "0" else "1"
    with pytest.raises(PauseChanged):
        await client.approve(pause.model_copy(update={"token": pause.token[:-1] + other}))
    assert paid(stack, pause.run_id) == []

    for _ in range(2):
        await client.approve(pause, idempotency_key="my-decision")
    with pytest.raises(IdempotencyConflict):
        await client.reject(pause, idempotency_key="my-decision")
    with pytest.raises(PauseClosed) as closed:
        await client.approve(pause)
    assert closed.value.status == 409
    await client.result(pause.run_id)
    with pytest.raises(RunAlreadyEnded):
        await client.approve(pause)
    assert paid(stack, pause.run_id) == [500]


async def test_silence_is_no_approval(client: Client, model: ModelServer, stack: Stack) -> None:
    """A rule says how long the call waits. Then it is rejected, and the model reads that."""
    model.say(PAY, answer("Nobody answered."))
    run_id = await client.start("Pay the invoice", agent="impatient")
    assert await failures(client, run_id) == ["approval_expired"]
    assert paid(stack, run_id) == []


async def test_the_deadline_stands_still_while_a_person_thinks(client: Client, model: ModelServer) -> None:
    """What was left of it before the pause is left after it."""
    model.say(PAY, answer("Paid."))
    run = await client.chat("Pay the invoice", agent="scripted", limits={"deadline_s": 3})
    await wait_until(lambda: unix_ms() > run.requested_at + 3_100, what="the deadline would have passed")
    await client.approve(run.pauses[0])
    ended = await client.result(run.run_id)
    assert (ended.status, ended.reason) == ("done", "answer_complete")


async def test_a_listener_on_nats_receives_what_waits(
    client: Client, model: ModelServer, tutorial_nats: NatsServer
) -> None:
    """All that a decision needs is in the event. It is made over HTTP, where a key has the right to decide."""
    model.say(PAY, answer("Paid."))
    async with await nats.connect(tutorial_nats.url, **tutorial_nats.login("operator")) as connection:
        records = await connection.subscribe("run.default.*.log")
        await processed(connection)
        pause = await paying(client)
        received: list[dict[str, object]] = []
        while not received:
            events = json.loads((await records.next_msg(timeout=20)).data)["events"]
            received = [event for event in events if event["type"] == "paused"]
    assert received[0]["arguments"] == {"euros": 500}
    assert (received[0]["pause_id"], received[0]["token"]) == (pause.pause_id, pause.token)
    assert received[0]["until"] == pause.expires_at > unix_ms()
    await client.reject(pause)
