"""A program that starts a run and follows it, decides about its pauses, and holds a conversation."""

from typing import Any, assert_type

from runwire import Client, RunwireError, errors, events
from runwire.client import AgentModels, OpenPause, RefusedTool, RunStatus, SessionEntry, SessionStatus, ToolSpec


async def follow(client: Client) -> str:
    """Events are a union, which a match takes apart."""
    run_id = await client.start(
        "How did sales go?",
        agent="default",
        limits={"max_steps": 3, "deadline_s": None},
        tools=["add"],
        vision="lenient",
    )
    assert_type(run_id, str)
    answer = ""
    async for event in client.follow(run_id):
        assert_type(event, events.RunEvent)
        assert_type(event.type in events.TERMINAL, bool)
        match event:
            case events.Chunk():
                assert_type(event.text, str)
                answer += event.text
            case events.Done():
                assert_type(event, events.Done)
                assert_type(event.sources, list[events.Source])
                assert_type(event.usage, events.Usage)
            case events.Error():
                assert_type(event.trace_id, str)
            case events.UnknownEvent():
                assert_type(event.type, str)
            case _:
                pass
    return answer


async def inspect(client: Client, run_id: str) -> events.FinalPayload | None:
    """What the other methods return."""
    status = await client.status(run_id)
    assert_type(status, RunStatus)
    assert_type(status.payload, events.FinalPayload | None)
    assert_type(await client.chat("And in May?", session_id="s", llm_context={"month": 5}), RunStatus)
    assert_type(await client.cancel(run_id), RunStatus)
    assert_type(await client.tools(), list[ToolSpec])
    assert_type(await client.refused_tools(), list[RefusedTool])
    assert_type(await client.agents(), list[AgentModels])
    async for stored in client.artifacts(run_id):
        assert_type(stored, events.ArtifactRef)
    async for listed in client.list_runs(status="done"):
        assert_type(listed, RunStatus)
    async for piece in client.fetch("0" * 32):
        assert_type(piece, bytes)
    return status.payload


def explain(error: RunwireError, fault: events.Fault) -> str:
    """Errors carry typed attributes."""
    assert_type(error.code, str)
    assert_type(error.status, int | None)
    assert_type(error.retry_after, float | None)
    assert_type(error.errors, tuple[dict[str, str], ...])
    assert_type(error.run_id, str | None)
    known: tuple[type[RunwireError], ...] = (errors.IdempotencyConflict, errors.NotFound, errors.Unreachable)
    known += (errors.PauseChanged, errors.PauseClosed, errors.RunAlreadyEnded, errors.SessionBusy)
    return f"{error.detail}, {fault.code}, {isinstance(error, known)}"


async def decide(client: Client, run_id: str) -> RunStatus:
    """Go on with a run that waits for a person."""
    status = await client.wait(run_id)
    assert_type(status.pauses, list[OpenPause])
    for pause in await client.pauses(run_id):
        assert_type(pause, OpenPause)
        assert_type(pause.arguments, dict[str, Any] | None)
        match pause.reason:
            case "approval":
                await client.approve(pause, note="fine")
            case "input":
                await client.answer(pause, {"colour": "blue"}, images=["photo.png"])
            case _:
                await client.reject(pause)
    await client.edit(status.pauses[0], {"amount": 5}, idempotency_key="once")
    await client.send_input(run_id, "in euros", redirect=True)
    return await client.result(run_id)


async def converse(client: Client) -> str:
    """A session, and a conversation that the caller keeps."""
    await client.chat("And in May?", session_id="s", on_busy="steer", on_paused="queue", memory={"recent_turns": 5})
    await client.chat("And now?", messages=[{"role": "user", "content": "Hello"}])
    async for listed in client.sessions(limit=3):
        assert_type(listed, SessionEntry)
    async for event in client.session_events("s"):
        assert_type(event, events.SessionEvent)
        match event:
            case events.RunEnded():
                assert_type(event.answer, str)
            case events.RunWaits():
                assert_type(event.pauses, list[OpenPause])
            case _:
                pass
    await client.set_context("s", {"month": 5})
    session = await client.session("s")
    assert_type(session, SessionStatus)
    assert_type(session.recent_runs, list[RunStatus])
    await client.delete_session("s")
    return session.summary
