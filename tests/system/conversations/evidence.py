"""What a storm over conversations leaves: logs of sessions and runs, the tools' ledger, and what people received."""

from dataclasses import dataclass, field
from pathlib import Path

import orjson

from contracts.wire import keys, subjects
from services.messaging.connection import Bus
from tests.system import evidence
from tests.system.traces import Evidence, StoredRecord


@dataclass
class Decision:
    """A decision about a pause, as its sender saw it. `key`: its Idempotency-Key; `status`: of the last answer."""

    run: str
    pause: str
    decision: str
    key: str
    status: int = 0
    code: str = ""


@dataclass
class Input:
    """A text that was added to a run."""

    run: str
    text: str
    status: int = 0
    at: float = 0.0
    """When the answer with this status came, Unix seconds."""


@dataclass
class Conversations:
    """Everything together."""

    of_runs: Evidence
    session_of: dict[str, str] = field(default_factory=dict)
    """Run -> session id."""
    sessions: dict[str, list[StoredRecord]] = field(default_factory=dict)
    """Session id -> its log."""
    decisions: list[Decision] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)


async def session_records(bus: Bus, session_id: str) -> list[StoredRecord]:
    """The log of a session, in the order of storage."""
    reader = await bus.reader(subjects.SESSIONS)
    subject = subjects.session_log(subjects.DEFAULT_TENANT, keys.session_key(session_id))
    found = []
    for sequence, data in await reader.read(subject):
        body = orjson.loads(data)
        found.append(StoredRecord(sequence, "session", body["at"] / 1000, body["events"]))
    return found


async def gather(bus: Bus, found: Conversations, ledger: Path) -> None:
    """Read the logs, the ledger and the queues."""
    read = await evidence.gather(bus, found.of_runs.runs, ledger, {"pay": False, "paint": False, "once": False})
    found.of_runs.executions, found.of_runs.left = read.executions, read.left
    found.of_runs.idempotent = read.idempotent
    found.sessions = {session: await session_records(bus, session) for session in set(found.session_of.values())}
