"""Writes a session's records as the planner does, so that there is something to read."""

from contracts.sessions.records import (
    CHECKPOINT_HEADER,
    Checkpoint,
    KnownSessionEvent,
    RunBegun,
    RunEnded,
    RunQueued,
    SessionEntry,
    SessionRecord,
    SessionStarted,
)
from contracts.wire import keys, subjects
from contracts.wire.names import unix_ms
from contracts.wire.records import EVENTS_HEADER
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.shared.sessions.fold import fold
from services.shared.sessions.state import Session


class SessionWriter:
    """One session. `state`: what its log adds up to."""

    def __init__(self, bus: Bus, session_id: str, tenant: str = "default", user_id: str | None = None) -> None:
        self.bus = bus
        self.tenant = tenant
        self.session_id = session_id
        self.user_id = user_id
        self.key = keys.session_key(session_id)
        self.state = Session()

    async def log(self, *events: KnownSessionEvent, by: str = "") -> int:
        """Append one record."""
        record = SessionRecord(events=list(events), by=by)
        headers = {EVENTS_HEADER: record.types(), CHECKPOINT_HEADER: str(self.state.checkpoint_seq)}
        subject = subjects.session_log(self.tenant, self.key)
        sequence = await self.bus.publish(subject, record.model_dump_json().encode(), headers)
        self.state = fold(self.state, sequence, record)
        return sequence

    async def start(self) -> int:
        """The session begins."""
        return await self.log(SessionStarted(session_id=self.session_id, user_id=self.user_id))

    async def begin(self, run: str, requested_at: int | None = None) -> int:
        """A run has the turn."""
        return await self.log(RunQueued(run=run, requested_at=requested_at or unix_ms()), RunBegun(run=run))

    async def end(self, run: str, answer: str = "because") -> int:
        """The run that has the turn ends."""
        return await self.log(RunEnded(run=run, outcome="done", question="why?", answer=answer))

    async def checkpoint(self) -> int:
        """The whole state is written."""
        return await self.log(Checkpoint(state=self.state.model_dump(mode="json", exclude_defaults=True)))

    async def enter(self) -> SessionEntry:
        """Write the session's entry in the index."""
        entry = SessionEntry(
            session_id=self.session_id,
            key=self.key,
            user_id=self.user_id,
            created_at=self.state.created_at,
            updated_at=self.state.updated_at,
            runs=self.state.runs,
            current_run=self.state.current.run if self.state.current is not None else None,
            open_decisions=sum(group.awaits_decision for group in self.state.background.groups.values()),
        )
        place = keys.session_entry_key(self.tenant, entry.created_at, self.key)
        await Bucket(self.bus, keys.RUNS_BUCKET).put(place, entry)
        return entry
