"""While a run of a session works, a further request to the session waits, joins it, is refused or takes its place."""

import pytest

from contracts.runs.requests import RunStatus
from contracts.wire.names import new_id
from runwire import Client
from runwire.errors import SessionBusy
from runwire.events import InputAdded
from tests.fundamentals.conftest import answer_in, until
from tests.support.model_server import ModelServer, Say, action, answer

QUESTION_BACK = Say(text=answer("Which city?", requires_followup=True).text)


async def at_work(client: Client, session: str, nap_s: float = 50) -> str:
    """Start a run of the session, and return its id once its tool works."""
    run_id = await client.start(f"Take a nap of {nap_s:g} seconds", session_id=session)
    await until(client, run_id, "tool_progress")
    return run_id


async def waiting(client: Client, session: str, agent: str = "scripted") -> RunStatus:
    """Start a run that waits for a person."""
    return await client.chat("Go ahead", agent=agent, session_id=session)


async def test_it_waits_for_its_turn(client: Client, model: ModelServer, session: str) -> None:
    """Unless it says otherwise. Its deadline counts from its begin, and it knows what the first has answered."""
    model.say(answer("Good morning."))
    first = await at_work(client, session, nap_s=3)
    second = await client.start("Are you awake?", agent="scripted", session_id=session, limits={"deadline_s": 2.5})
    assert (await client.status(second)).status == "queued"
    run = await client.result(second)

    assert (run.reason, answer_in(run)) == ("answer_complete", "Good morning.")
    assert (run.started_at or 0) >= ((await client.status(first)).ended_at or 0) > 0
    assert "slept 3 seconds" in model.ledger[0].text


async def test_it_waits_no_longer_than_it_says(client: Client, session: str) -> None:
    """Then it ends with an error, and the run that has the turn is not disturbed."""
    first = await at_work(client, session)
    second = await client.chat("Are you awake?", session_id=session, queue_timeout_s=0.2)
    assert (second.status, second.code) == ("error", "queue_timeout")
    assert (await client.status(first)).status == "running"
    await client.cancel(first)


async def test_steer_adds_its_text_to_the_run_under_way(client: Client, model: ModelServer, session: str) -> None:
    """Its own run ends with the route `merged`, and names the run that goes on with the text."""
    model.say(action("take_nap", seconds=2), answer("545,796 people."))
    first = await client.start("How many people live in Lisbon?", agent="scripted", session_id=session)
    await until(client, first, "tool_progress")
    merged = await client.chat("In digits, please", session_id=session, on_busy="steer")

    assert merged.payload is not None
    assert (merged.payload.route, merged.payload.extra["run_id"]) == ("merged", first)
    assert [event.text async for event in client.follow(first) if isinstance(event, InputAdded)] == [
        "In digits, please"
    ]
    assert "In digits, please" in model.ledger[1].text


async def test_steer_begins_by_itself_where_no_run_is_left(client: Client, model: ModelServer) -> None:
    """Nothing that was asked is lost."""
    model.say(answer("Good morning."))
    run = await client.chat("Are you awake?", agent="scripted", session_id=new_id(), on_busy="steer")
    assert run.payload is not None
    assert (run.payload.route, run.payload.raw_answer) == (None, "Good morning.")


async def test_reject_is_refused_at_once(client: Client, session: str) -> None:
    """With 409; nothing is queued."""
    first = await at_work(client, session)
    with pytest.raises(SessionBusy) as refused:
        await client.start("Are you awake?", session_id=session, on_busy="reject")
    assert (refused.value.status, refused.value.code) == (409, "session_busy")
    found = await client.session(session)
    assert (found.current_run, found.queue, found.runs) == (first, [], 1)
    await client.cancel(first)


async def test_cancel_takes_the_turn(client: Client, model: ModelServer, session: str) -> None:
    """It begins once the other run has ended."""
    model.say(answer("Good morning."))
    first = await at_work(client, session)
    second = await client.chat("Wake up!", agent="scripted", session_id=session, on_busy="cancel")
    ended = await client.status(first)
    assert ended.status == "cancelled"
    assert (second.started_at or 0) >= (ended.ended_at or 0) > 0
    assert answer_in(second) == "Good morning."


async def test_it_answers_a_run_that_waits_for_a_person(client: Client, model: ModelServer, session: str) -> None:
    """`on_paused` says what happens then. By default the text is the answer to the question."""
    model.say(QUESTION_BACK, answer("545,796"))
    asking = await waiting(client, session, "asking")
    assert [pause.title for pause in asking.pauses] == ["Which city?"]
    merged = await client.chat("In Lisbon", agent="asking", session_id=session)

    assert merged.payload is not None
    assert (merged.payload.route, merged.payload.extra["run_id"]) == ("merged", asking.run_id)
    answered = await client.result(asking.run_id)
    assert answer_in(answered) == "545,796"
    assert "In Lisbon" in model.ledger[1].text


async def test_it_rejects_a_call_that_waits_for_approval(client: Client, model: ModelServer, session: str) -> None:
    """Whoever says something else has not said yes. The text is the note."""
    model.say(action("pay", euros=10), answer("I have not paid."))
    paying = await waiting(client, session)
    assert [pause.tool for pause in paying.pauses] == ["pay"]
    await client.chat("Wait, is that all?", session_id=session)
    assert (await client.result(paying.run_id)).status == "done"
    assert "Wait, is that all?" in model.ledger[1].text


async def test_on_paused_has_the_same_choices(client: Client, model: ModelServer, session: str) -> None:
    """Here the request takes the turn of the run that waits."""
    model.say(action("pay", euros=10), answer("Good morning."))
    paying = await waiting(client, session)
    with pytest.raises(SessionBusy):
        await client.start("Are you awake?", session_id=session, on_paused="reject")
    second = await client.chat("Never mind!", agent="scripted", session_id=session, on_paused="cancel")
    assert answer_in(second) == "Good morning."
    assert (await client.status(paying.run_id)).status == "cancelled"
