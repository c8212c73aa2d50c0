"""Read a session: the newest checkpoint on its log and what follows it, and the runs that it names.

A run that was requested without a session is found as the session `run-<its id>`, before any log of it exists.
"""

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from contracts.runs.pauses import OpenPause
from contracts.runs.requests import RunRequested, RunStatus
from contracts.sessions.records import MAX_REMEMBERED_S, SessionRecord, SessionStatus
from contracts.wire import keys, subjects
from contracts.wire.base import parsed
from contracts.wire.names import own_session_id, run_of_own_session, unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.errors import NotFound, SessionBusy, SessionDeleting
from services.gateway.runs.reader import Deletions, RunReader, StoredRun
from services.messaging.connection import Bus
from services.messaging.errors import Unavailable
from services.messaging.kv import Bucket
from services.messaging.reads import sequence_of
from services.shared.runs.causes import CAUSES
from services.shared.sessions.fold import fold, newest_checkpoint
from services.shared.sessions.state import Session, group_view, shown_groups, task_view

MAX_RUNS_SHOWN = 100
MAX_TASKS_SHOWN = 100
MAX_GROUPS_SHOWN = 100
MAX_KNOWN_SESSIONS = 500
MAX_KNOWN_TASKS = 20_000
"""Of these sessions together; a task takes 3 KiB."""
_NO_SESSION = Session()
MAX_ID_CHARACTERS = 200
_READ_ATTEMPTS = 3
_MAX_WAIT_S = 5.0


class SessionReader:
    """Reads sessions of any tenant."""

    def __init__(self, bus: Bus, runs: RunReader, deletions: Deletions) -> None:
        self._bus = bus
        self._runs = runs
        self._deletions = deletions
        self._known: OrderedDict[str, tuple[int, Session]] = OrderedDict()
        """By the subject of its log, with the time when that was read, Unix ms. What follows is folded onto it."""
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By the same, while it is read."""
        self._index = Bucket(bus, keys.RUNS_BUCKET, attempts=_READ_ATTEMPTS)

    async def find(
        self, tenant: str, session_id: str, *, from_replica: bool = False, is_current: bool = False
    ) -> Session | None:
        """Return a session without its turns; None for one that never existed or was deleted. Raises BusError.

        `from_replica`: a replica may lag behind, so it may miss a session that is new. `is_current`: all that the
        leader of the stream has is read.
        """
        log = subjects.session_log(tenant, keys.session_key(session_id))
        # One after another, so that each reads and folds only what is new since the one before.
        lock = self._reading.setdefault(log, asyncio.Lock())
        try:
            async with asyncio.timeout(_MAX_WAIT_S):
                await lock.acquire()
        except TimeoutError as error:
            raise Unavailable("reads of the session's log take too long") from error
        try:
            session = await self._read(log, from_replica=from_replica, is_current=is_current)
        finally:
            lock.release()
        return session if session is not None and session.exists else None

    async def _read(self, log: str, *, from_replica: bool, is_current: bool) -> Session | None:
        reader, now = await self._bus.reader(subjects.SESSIONS), unix_ms()
        read_at, session = self._known.get(log, (now, _NO_SESSION))
        if now - read_at >= MAX_REMEMBERED_S * 1000:
            session = _NO_SESSION  # Its log may be empty by now: the last record of a deleted session goes.
        read, start = reader.current if is_current else reader.messages, session.seq + 1
        if not session.seq:
            newest = await self._bus.last(subjects.SESSIONS, log, _READ_ATTEMPTS)
            if newest is not None:
                start = newest_checkpoint(newest.headers, sequence_of(newest)) or 1
            elif from_replica or await self._bus.last_from_leader(subjects.SESSIONS, log, _READ_ATTEMPTS) is None:
                return None
            else:
                read = reader.current
        for message in await read(log, start, attempts=_READ_ATTEMPTS):
            if (record := parsed(SessionRecord, message.data)) is not None:
                session = fold(session, sequence_of(message), record)
                session = session.model_copy(update={"turns": []}) if session.turns else session
        self._known[log] = now, session
        self._known.move_to_end(log)
        tasks = sum(len(each.background.tasks) for _, each in self._known.values())
        while len(self._known) > MAX_KNOWN_SESSIONS or tasks > MAX_KNOWN_TASKS:
            _, (_, dropped) = self._known.popitem(last=False)
            tasks -= len(dropped.background.tasks)
        return session

    async def get(self, caller: Caller, session_id: str) -> Session:
        """Return a session that the caller may see. Every route about one session passes here.

        One without a `seq` has no log yet. Raises NotFound and BusError.
        """
        if not 0 < len(session_id) <= MAX_ID_CHARACTERS:
            raise NotFound
        session = await self.find_for(caller, session_id)
        if session is None:
            run = await self._run_of(caller, session_id)
            status = run.status()
            return Session(session_id=session_id, user_id=status.user_id, created_at=status.requested_at)
        return session

    async def find_for(self, caller: Caller, session_id: str, *, from_replica: bool = False) -> Session | None:
        """Return a session; None: it has no log yet. Raises NotFound for one of another user, and BusError."""
        session = await self.find(caller.tenant, session_id, from_replica=from_replica)
        if session is not None and not caller.may_see(session.user_id):
            raise NotFound
        return session

    async def get_to_change(self, caller: Caller, session_id: str) -> Session:
        """Return the same of a session whose runs the caller may change. Raises NotFound, NotAllowed and BusError."""
        session = await self.get(caller, session_id)
        runs = [each.run for each in session.queue] + [each.run for each in session.recent]
        current = session.current.run if session.current else run_of_own_session(session_id)
        await self.check_change(caller, [*runs, *([current] if current else []), *session.background.tasks])
        return session

    async def check_change(self, caller: Caller, runs: list[str]) -> None:
        """Raise NotAllowed unless the caller may change each of these runs."""
        for found in (await self._found(caller.tenant, runs)).values() if caller.is_limited else ():
            caller.check_change(found.request())

    async def status(self, caller: Caller, session_id: str) -> SessionStatus:
        """Return what is shown of a session. Raises NotFound and BusError."""
        session = await self.get(caller, session_id)
        if not session.seq:
            return _of_one_run(await self._run_of(caller, session_id))
        runs, stored = await self._runs_of(caller.tenant, session)
        pauses = await self._pauses_of(caller.tenant, session, stored)
        newest_first = list(session.background.tasks.values())[::-1]
        tasks = sorted(newest_first, key=lambda task: task.status != "running")
        return SessionStatus(
            session_id=session_id,
            key=keys.session_key(session_id),
            user_id=session.user_id,
            created_at=session.created_at,
            updated_at=session.updated_at,
            runs=session.runs,
            current_run=session.current.run if session.current else None,
            queued_runs=len(session.queue),
            open_pauses=len(pauses),
            open_tasks=len(session.background.open_tasks()),
            open_decisions=sum(group.awaits_decision for group in session.background.groups.values()),
            pending_proposal=session.pending_proposal,
            usage=session.usage,
            recent_runs=runs,
            queue=[each.run for each in session.queue],
            summary=session.summary,
            context=session.context,
            pauses=pauses,
            tasks=[task_view(session, each, with_result=False) for each in tasks[:MAX_TASKS_SHOWN]],
            groups=[group_view(session, each) for each in shown_groups(session)[: -MAX_GROUPS_SHOWN - 1 : -1]],
            proposals=[each.entry(each.state) for each in reversed(session.proposals.values()) if each.state],
        )

    async def check_turn(self, caller: Caller, requested: RunRequested) -> str | None:
        """Return the run that the request may steer or cancel as the one that has the turn; None: none that is known.

        It only checks beforehand: the session decides when it has received the request. Raises SessionDeleting,
        SessionBusy, NotAllowed, and NotFound for a session of another user or from another's run.
        """
        session_id = requested.session_id or ""
        session = await self.find_for(caller, session_id, from_replica=True)
        if session is not None and session.is_deleting:
            raise SessionDeleting
        current = session.current if session is not None else None
        run = current.run if current else run_of_own_session(session_id) if session is None else None
        if session is None and run is not None and caller.user_id is not None:
            await self._runs.get(caller, run)  # The conversation would begin with it.
        if run is None or not (caller.is_limited or "reject" in {requested.on_busy, requested.on_paused}):
            return run
        stored = await self._runs.find(caller.tenant, run)
        if stored is None or stored.has_ended:
            return None
        waits = bool(stored.pauses) and stored.waiting.is_for_person
        policy = requested.on_paused if waits else requested.on_busy
        if current is not None and CAUSES[current.cause].gives_way:
            return None  # It gives the turn to the request.
        if policy == "reject":
            raise SessionBusy
        if policy != "queue":
            caller.check_change(stored.request())
            return run
        return None

    async def is_position_of(self, tenant: str, session_key: str, sequence: int) -> bool:
        """Return whether a listener can have reached this sequence of a session's log; 0 is the beginning.

        The sequence of a record that was removed when the session was deleted counts. Raises BusError.
        """
        log = subjects.session_log(tenant, session_key)
        if not sequence:
            return True
        newest = await self._bus.last_from_leader(subjects.SESSIONS, log, _READ_ATTEMPTS)
        if newest is None or sequence > newest[0]:
            return False
        return await self._runs.subject_at(subjects.SESSIONS, sequence) in {None, log}

    async def _run_of(self, caller: Caller, session_id: str) -> StoredRun:
        """Return the run that a session continues from which has no log yet. Raises NotFound."""
        run = run_of_own_session(session_id)
        found = await self._runs.get(caller, run) if run else None
        if found is None or found.session_id != session_id:
            raise NotFound
        return found

    async def _runs_of(self, tenant: str, session: Session) -> tuple[list[RunStatus], dict[str, StoredRun]]:
        """Return the newest runs of a session, newest first, and by id those of them that are open.

        Those that ended come from the index, the others from their logs. Tasks are not among them.
        """
        turn = [session.current.run] if session.current else []
        stored = await self._found(tenant, [*turn, *(each.run for each in session.queue)][:MAX_RUNS_SHOWN])
        ended = session.recent[: MAX_RUNS_SHOWN - len(stored)]
        places = [keys.run_key(tenant, each.requested_at, each.run) for each in ended]
        entries, deleted = await asyncio.gather(
            self._index.get_many(places), self._deletions.among(tenant, [each.run for each in ended])
        )
        listed = [entries[place].parsed(RunStatus) for place in places if place in entries]
        runs = [each.status().model_copy(update={"payload": None, "pauses": []}) for each in reversed(stored.values())]
        runs += [status for status in listed if status is not None and status.run_id not in deleted]
        return runs, stored

    async def _pauses_of(self, tenant: str, session: Session, stored: dict[str, StoredRun]) -> list[OpenPause]:
        """Return the open pauses as the logs of their runs have them. `stored`: runs that have been read."""
        waiting = list(dict.fromkeys(pause.run_id for pause in session.pauses))
        if session.current and session.current.run in stored and session.current.run not in waiting:
            waiting.insert(0, session.current.run)  # The session may not have received of its pauses yet.
        stored = {**stored, **await self._found(tenant, [run for run in waiting if run not in stored])}
        return [pause for run in waiting if run in stored for pause in stored[run].pauses]

    async def _found(self, tenant: str, runs: list[str]) -> dict[str, StoredRun]:
        found = await asyncio.gather(*(self._runs.find(tenant, run) for run in runs))
        return {each.run_id: each for each in found if each is not None}


def _of_one_run(run: StoredRun) -> SessionStatus:
    status = run.status()
    session_id = own_session_id(run.run_id)
    return SessionStatus(
        session_id=session_id,
        key=keys.session_key(session_id),
        user_id=status.user_id,
        created_at=status.requested_at,
        updated_at=status.ended_at or status.started_at or status.requested_at,
        runs=1,
        current_run=None if run.has_ended else run.run_id,
        open_pauses=len(run.pauses),
        **({"usage": status.usage} if status.usage else {}),
        recent_runs=[status.model_copy(update={"payload": None, "pauses": []})],
        pauses=run.pauses,
    )
