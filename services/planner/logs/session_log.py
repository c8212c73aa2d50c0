"""Reads, folds and caches the logs of sessions, and appends to them: each record is the successor of the newest.

Each record names the newest checkpoint in its header, so loading a session costs two reads: the newest record, then
the checkpoint with all that follows it. Only a cache lives here, so any planner can take over at any point. What was
read long ago is not used: the record that says that the session was deleted may be gone by now.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from nats.aio.msg import Msg
from pydantic import BaseModel, ValidationError

from contracts.sessions import records
from contracts.sessions.proposals import ProposalApplying
from contracts.sessions.records import SessionRecord
from contracts.sessions.tasks import Reported, TaskSpawned
from contracts.wire import keys, subjects
from contracts.wire.names import unix_ms
from contracts.wire.records import EVENTS_HEADER
from services.messaging import dead_letters, guarded_write
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.guarded_write import Guard
from services.messaging.reads import sequence_of
from services.planner.errors import short
from services.runtime.newest import Newest
from services.shared.sessions.fold import MAX_OLDER_RUNS, checkpoint, fold, newest_checkpoint
from services.shared.sessions.state import Session

MAX_CACHED_SESSIONS = 500
T = TypeVar("T", bound=BaseModel)


class SessionAddress(NamedTuple):
    """A session: its tenant, and its part of subjects (`keys.session_key`)."""

    tenant: str
    key: str

    @classmethod
    def of(cls, tenant: str, session_id: str) -> "SessionAddress":
        """Return the address of a session by the id that the caller gave it."""
        return cls(tenant, keys.session_key(session_id))


async def parsed(bus: Bus, kind: type[T], stream: str, subject: str, sequence: int, data: bytes) -> T | None:
    """Return a record of a log; None for one of which only the sequence counts.

    That is a forged one, which its reader has logged, and an invalid one, which goes to the dead letters.
    """
    try:
        return kind.model_validate_json(data) if data else None
    except ValidationError as error:
        await dead_letters.dead_letter_bytes(bus, stream, subject, data, short(error), f"dead-{stream}-{sequence}")
        return None


class SessionLogs:
    """Reads and writes the logs of all sessions."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._locks: WeakValueDictionary[SessionAddress, asyncio.Lock] = WeakValueDictionary()
        self._sessions = Newest[SessionAddress, tuple[int, Session]](MAX_CACHED_SESSIONS)
        """With the time of the last look at its log, Unix ms."""

    def lock(self, address: SessionAddress) -> asyncio.Lock:
        """Give the lock of a session, as `RunLogs.lock` does for a run."""
        return self._locks.setdefault(address, asyncio.Lock())

    async def load(self, address: SessionAddress, *, from_leader: bool = False, may_be_old: bool = False) -> Session:
        """Return the session as its log is now. `from_leader`: a replica may lag behind.

        `may_be_old`: one that is cached is not read again, since an append shows whether it is old.
        """
        session = self._cached(address)
        if session is not None and may_be_old:
            return session
        if session is None:
            newest = await self._bus.last(subjects.SESSIONS, subjects.session_log(*address))
            if newest is None and may_be_old:
                return Session()
            session, start = Session(), _checkpoint_of(newest) or 1 if newest is not None else 1
        else:
            start = session.seq + 1
        reader, subject = await self._bus.reader(subjects.SESSIONS), subjects.session_log(*address)
        tail = await (reader.current(subject, start) if from_leader else reader.messages(subject, start))
        return self._keep(address, await self._folded(session, tail))

    async def append(
        self, address: SessionAddress, session: Session, by: str, events: Sequence[records.KnownSessionEvent]
    ) -> Session | None:
        """Write a record after the newest known one, and return the session after it; None: another record came first.

        `by`: `<stream>:<sequence>` of the message whose handling writes it. A checkpoint follows where one is due.
        """
        written = await self._write(address, session, SessionRecord(by=by, events=list(events)))
        if written is None:
            await self.load(address, from_leader=True)
            return None
        if written.exists and written.records >= records.CHECKPOINT_EVERY:
            written = await self._with_checkpoint(address, written) or written
        return self._keep(address, written)

    async def trim(self, address: SessionAddress) -> None:
        """Write a checkpoint and delete all records before it. Its record informs clients that resume earlier."""
        trimmed, session = None, await self.load(address, from_leader=True)
        while trimmed is None and session.exists and not session.is_deleting and checkpoint(session) is not None:
            named = [*(await self.runs(address, session)).items()][: MAX_OLDER_RUNS + 1]
            session = session.model_copy(update={"older_runs": dict(named)})
            trimmed = await self._with_checkpoint(address, session, records.RunsForgotten(runs=[]))
            session = trimmed or await self.load(address, from_leader=True)
        if trimmed is not None:
            self._keep(address, trimmed)
            await self.purge(address, trimmed.checkpoint_seq)

    async def runs(self, address: SessionAddress, session: Session) -> dict[str, int | None]:
        """Return the runs that the log of a session has named, with the time of their request, Unix ms; None: unknown.

        Without those that were forgotten.
        """
        runs = dict(session.older_runs)
        for record in await self.whole(address):
            for event in record.events:
                match event:
                    case records.RunQueued():
                        runs[event.run] = event.requested_at or record.at
                    case TaskSpawned():
                        runs[event.task_id] = event.requested_at
                    case ProposalApplying():
                        runs[event.job] = None
                    case Reported():
                        runs[event.report_id] = None  # It may never have joined the session.
                    case records.RunsForgotten():
                        runs = {run: at for run, at in runs.items() if run not in event.runs}
        return runs

    async def purge(self, address: SessionAddress, before: int) -> None:
        """Delete the records of a session before this sequence."""
        body = {"filter": subjects.session_log(*address), "seq": before}
        await self._bus.api(f"STREAM.PURGE.{subjects.SESSIONS}", body)

    async def _with_checkpoint(
        self, address: SessionAddress, session: Session, *more: records.KnownSessionEvent
    ) -> Session | None:
        """Write a checkpoint; None: another record came first, or the state is too large for one."""
        state = checkpoint(session)
        return None if state is None else await self._write(address, session, SessionRecord(events=[state, *more]))

    async def at(self, address: SessionAddress, sequence: int) -> Session:
        """Return the session as it was after the record with this sequence, or after the first one that is left.

        A session without a `session_id`: it was deleted since.
        """
        cached = self._cached(address)
        if cached is not None and cached.seq == sequence:
            return cached
        subject = subjects.session_log(*address)
        reader = await self._bus.reader(subjects.SESSIONS)
        page = await self._bus.until_answered(lambda: reader.page(subject, sequence, 1))
        start = _checkpoint_of(page[0][0]) if page[0] else 0
        stored = await reader.messages(subject, start or 1)
        # What came before the first one that is left was forgotten, perhaps just now.
        sequence = max([sequence, *map(sequence_of, stored[:1])])
        return await self._folded(Session(), [each for each in stored if sequence_of(each) <= sequence])

    async def whole(self, address: SessionAddress) -> list[SessionRecord]:
        """Read all records of a session, the oldest first."""
        reader = await self._bus.reader(subjects.SESSIONS)
        stored = await reader.current(subjects.session_log(*address))
        return [record for message in stored if (record := await self._parsed(message)) is not None]

    async def _write(self, address: SessionAddress, session: Session, record: SessionRecord) -> Session | None:
        subject = subjects.session_log(*address)
        headers = {EVENTS_HEADER: record.types(), records.CHECKPOINT_HEADER: str(session.checkpoint_seq)}
        if record.types() == "deleted":
            headers["Nats-TTL"] = str(records.DELETED_TTL_S)
        data = record.model_dump_json().encode()
        try:
            sequence = await guarded_write.write(self._bus, subject, data, Guard(subject, session.seq), headers=headers)
        except Outdated:
            return None
        return fold(session, sequence, record)

    def _keep(self, address: SessionAddress, session: Session) -> Session:
        """Store a session in the cache, unless a newer one is there; return the newer one."""
        cached = self._cached(address)
        newest = session if cached is None or session.seq >= cached.seq else cached
        self._sessions[address] = unix_ms(), newest
        return newest

    def _cached(self, address: SessionAddress) -> Session | None:
        at, session = self._sessions.get(address, (0, None))
        return session if unix_ms() - at < records.MAX_REMEMBERED_S * 1000 else None

    async def _folded(self, session: Session, stored: Sequence[Msg]) -> Session:
        for message in stored:
            record = await self._parsed(message)
            # Of a record that cannot be read only the sequence counts.
            sequence = sequence_of(message)
            session = (
                fold(session, sequence, record)
                if record is not None
                else session.model_copy(update={"seq": sequence, "records": session.records + 1})
            )
        return session

    async def _parsed(self, message: Msg) -> SessionRecord | None:
        subject, sequence = str((message.headers or {}).get("Nats-Subject", "")), sequence_of(message)
        return await parsed(self._bus, SessionRecord, subjects.SESSIONS, subject, sequence, message.data)


def _checkpoint_of(message: Msg) -> int:
    return newest_checkpoint(message.headers, sequence_of(message))
