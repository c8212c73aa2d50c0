"""What the model says in tests of background tasks, and what a session did with them."""

from typing import Any

from contracts.sessions.records import SessionRecord
from contracts.sessions.tasks import SessionTaskControl, TaskControlAction
from contracts.wire import subjects
from contracts.wire.names import new_id
from contracts.wire.records import EVENTS_HEADER
from services.messaging.connection import Bus
from services.planner.logs.session_log import SessionAddress
from services.shared.sessions.state import Session
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.run_services import Planning
from tests.support.session_logs import session_of
from tests.support.waiting import wait_until

HOST = {"host": {"tasks": {"spawn_requires_confirmation": False}}}
"""An agent whose runs spawn tasks, and no person is asked."""
PARENT = "Start all the work."
REPORT = "Background work has ended"
"""The beginning of a report's question. It is longer than PARENT, so that the model server prefers its script."""


def spawn(name: str, **more: Any) -> Say:
    """A reply that spawns a subagent, whose question is its name and `?`."""
    return action("task", name=name, mode="subagent", query=f"{name}?", **more)


def scripted(provider: ModelServer, *replies: Say, report: str = "All of it is done.", **children: Say) -> None:
    """What the run says turn by turn, what the report says, and what each task says."""
    provider.by_turn(*replies, marker=PARENT)
    provider.by_turn(answer(report), marker=REPORT)
    for name, said in children.items():
        provider.by_turn(said, marker=f"{name}?")


async def events_of(bus: Bus, session_id: str) -> list[Any]:
    """All events of a session, checkpoints left out."""
    reader = await bus.reader(subjects.SESSIONS)
    stored = await reader.current(subjects.session_log(*SessionAddress.of("default", session_id)))
    records = [message for message in stored if (message.headers or {})[EVENTS_HEADER] != "checkpoint"]
    return [event for message in records for event in SessionRecord.model_validate_json(message.data).events]


async def of_type(bus: Bus, session_id: str, kind: str) -> list[Any]:
    return [event for event in await events_of(bus, session_id) if event.type == kind]


async def settled(bus: Bus, session_id: str, *, reports: int | None = None) -> Session:
    """Return the session once no run, task or report of it is open, and it has had so many reports."""

    async def found() -> Session | None:
        session = await session_of(bus, session_id)
        if session.open_runs() or session.background.open_tasks() or session.background.reports:
            return None
        done = len(await of_type(bus, session_id, "reported"))
        return session if session.exists and (reports is None or done >= reports) else None

    session = await wait_until(found, what="nothing of the session is open", timeout=30)
    assert session is not None
    return session


async def control(planner: Planning, session_id: str, wanted: TaskControlAction, **fields: Any) -> None:
    """Ask for something about a task or group, as a person does over HTTP."""
    message = SessionTaskControl(id=new_id(), action=wanted, **fields)
    subject = subjects.session_inbox(*SessionAddress.of("default", session_id), f"task-{message.id}")
    await planner.bus.publish(subject, message)
