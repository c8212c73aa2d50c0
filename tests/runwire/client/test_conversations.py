"""The client's sessions, decisions and inputs, with a whole system."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.wire.ids import new_id
from runwire import Client
from runwire.client import OpenPause
from runwire.errors import IdempotencyConflict, NotFound, PauseChanged, PauseClosed, RunAlreadyEnded, SessionBusy
from runwire.events import InputAdded, RunEnded, SessionEvent
from runwire.local.data_folder import remembered

pytestmark = [pytest.mark.xdist_group("cli"), pytest.mark.usefixtures("slow_tools")]
REPORT = "Send a report to ann@example.org: 'All is well'"


@pytest.fixture
async def client(up: Path) -> AsyncIterator[Client]:
    """Of the system's gateway."""
    async with Client(remembered(up)["url"], patience_s=10) as made:
        yield made


async def waiting(client: Client) -> OpenPause:
    """What a run waits for that wants to send a report."""
    status = await client.chat(REPORT)
    (pause,) = status.pauses
    assert (status.payload, pause.tool, pause.reason) == (None, "send_report", "approval")
    return pause


@pytest.mark.parametrize("name", ["plain", "a/b ü?#", "..", "%41"])
async def test_a_session_from_its_first_turn_to_its_deletion(client: Client, name: str) -> None:
    """Whatever its id is."""
    session_id = f"{name}-{new_id()}" if name != ".." else name
    status = await client.chat("What is 6*7?", session_id=session_id)
    assert status.session_id == session_id
    await client.set_context(session_id, {"month": "May"})
    session = await client.session(session_id)
    assert (session.context, [run.run_id for run in session.recent_runs]) == ({"month": "May"}, [status.run_id])
    assert session_id in [entry.session_id async for entry in client.sessions()]
    assert [run.query async for run in client.list_runs(session_id=session_id)] == ["What is 6*7?"]

    events: list[SessionEvent] = []
    async for event in client.session_events(session_id):
        events.append(event)
        if event.type == "context_set":
            await client.delete_session(session_id)
    (ended,) = [event for event in events if isinstance(event, RunEnded)]
    assert (ended.question, ended.answer) == ("What is 6*7?", "6*7 = 42")
    assert [event.type for event in events[-2:]] == ["deleting", "deleted"]
    with pytest.raises(NotFound):
        await client.session(session_id)


async def test_a_decision_counts_once(client: Client) -> None:
    """Under its key; after it the pause is closed, and after the end of the run the run has ended."""
    pause = await waiting(client)
    altered = pause.model_copy(update={"token": f"{pause.token[:-1]}{'0' if pause.token[-1] != '0' else '1'}"})
    with pytest.raises(PauseChanged):
        await client.approve(altered)
    await client.approve(pause, idempotency_key="one")
    await client.approve(pause, idempotency_key="one")
    with pytest.raises(IdempotencyConflict):
        await client.reject(pause, idempotency_key="one")
    with pytest.raises((PauseClosed, RunAlreadyEnded)):
        await client.reject(pause)
    status = await client.wait(pause.run_id)
    assert status.payload is not None
    assert status.payload.raw_answer == "The report was sent to ann@example.org."
    with pytest.raises(RunAlreadyEnded):
        await client.approve(pause)
    with pytest.raises(RunAlreadyEnded):
        await client.send_input(pause.run_id, "too late")


async def test_a_decision_of_somebody_else(client: Client) -> None:
    """Is found by the one who waits."""
    pause = await waiting(client)
    result = asyncio.create_task(client.result(pause.run_id))
    await client.reject(pause, note="Ann is on leave")
    status = await result
    assert status.payload is not None
    assert "Ann is on leave" in status.payload.raw_answer
    assert await client.pauses(pause.run_id) == []


async def test_a_question_while_a_run_has_the_turn(client: Client, up: Path) -> None:
    """It is refused, or its text goes to the run that has the turn."""
    session_id, topic = new_id(), new_id()
    first = await client.start(f"Ponder the topic '{topic}'", session_id=session_id)
    async for event in client.follow(first):
        if event.type == "step":
            break
    with pytest.raises(SessionBusy):
        await client.start("And now?", session_id=session_id, on_busy="reject")
    merged = await client.chat("in euros", session_id=session_id, on_busy="steer")
    assert merged.payload is not None
    assert (merged.payload.route, merged.payload.extra["run_id"]) == ("merged", first)
    (up / topic).touch()
    inputs = [event.text async for event in client.follow(first) if isinstance(event, InputAdded)]
    assert inputs == ["in euros"]


async def test_a_conversation_that_the_caller_keeps(client: Client) -> None:
    """The model is shown it; it belongs to no session."""
    status = await client.chat(
        "Which one was that?",
        messages=[{"role": "user", "content": "What is 17*23?"}, {"role": "assistant", "content": "It is 391."}],
    )
    assert status.payload is not None
    assert "What is 17*23?" in status.payload.raw_answer
