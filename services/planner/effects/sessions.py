"""Carries out what happens in sessions: a run joins one, or a message of a run or a person arrives.

Rule 1: a run's log is written first, then the message to its session, and then the delivery is acknowledged.
Rule 2: a session takes each fact once; a redelivery changes nothing, and repeats the commands, which are idempotent.
Rule 3: before a session with a current run decides anything, that run's own log is asked whether it has ended: its
message may still be under way.
"""

import asyncio
from typing import assert_never

from contracts.runs.events import TERMINAL
from contracts.runs.inbox import (
    CancelRequested,
    GroupDue,
    InputRequested,
    RunBegins,
    RunMerged,
    RunRefused,
    SessionAttached,
)
from contracts.runs.requests import RunRequested
from contracts.sessions.records import SESSION_MESSAGE, SessionContextRequested, SessionRunEnded, SessionRunWaits
from contracts.sessions.tasks import SessionGroupDue, SessionTaskCalled
from contracts.wire import subjects
from contracts.wire.ids import run_of_own_session
from contracts.wire.records import PAUSES_HEADER, types_in
from services.messaging.connection import Bus
from services.planner.effects import messages
from services.planner.effects.deletion import SessionDeletion
from services.planner.effects.session_tasks import OfTasks, SessionTasks
from services.planner.logs import index
from services.planner.logs.keyed_locks import KeyedLocks
from services.planner.logs.ownership_watch import Address
from services.planner.logs.run_log import RunLogs
from services.planner.logs.session_log import SessionAddress, SessionLogs
from services.planner.run import session_facts
from services.planner.run.people import pauses
from services.planner.run.session_place import Busy, Place, Waiting
from services.planner.sessions import decide, summaries
from services.planner.sessions.commands import (
    Attach,
    Begin,
    Cancel,
    Command,
    Forward,
    Merged,
    Purge,
    Refuse,
    RequestSummary,
    WriteEntry,
)
from services.planner.sessions.decide import Received
from services.shared.runs.last_record import last_record
from services.shared.sessions.state import Session

ToRun = Forward | Cancel | Merged | Refuse | Attach
First = RunRequested | SessionContextRequested | SessionTaskCalled
"""What may begin a session."""
ControlMessage = InputRequested | CancelRequested | RunMerged | RunRefused | SessionAttached


class Sessions:
    """The sessions of all tenants, over one bus."""

    def __init__(self, bus: Bus, runs: RunLogs, logs: SessionLogs) -> None:
        self._bus = bus
        self._runs = runs
        self._logs = logs
        self._deletion = SessionDeletion(bus, logs)
        self._tasks = SessionTasks(bus, runs, logs)
        self._locks = KeyedLocks()

    async def enter(self, request: RunRequested, owner: str, *, is_queued: bool) -> Place:
        """Let a run join its session, and return its place. `owner`: the message of the request.

        Unless `is_queued`, the run joins only if it begins at once; `Busy` otherwise.
        """
        where = SessionAddress.of(request.tenant, request.session_id or "")
        async with self._locks.of(where) as lock, lock:
            session = await self._offered(where, request, owner, is_queued=is_queued)
        if session is None:
            return Busy()
        await self._carry_out(where, session, request)
        return decide.place_of(session, request.run_id) or Waiting()

    async def _offered(
        self, where: SessionAddress, request: RunRequested, owner: str, *, is_queued: bool
    ) -> Session | None:
        """Return the session that has the run; None: it would have to wait, and its log does not say so yet."""
        while True:
            session = await self._settled(where, owner, request)
            if decide.place_of(session, request.run_id) is not None:
                return session
            if not is_queued and not decide.begins_at_once(session, request):
                return None
            written = await self._logs.append(where, session, owner, decide.offer(session, request))
            if written is not None:
                return written

    async def on_message(self, where: SessionAddress, data: bytes, owner: str) -> None:
        """Handle a message to a session. Raises ValidationError for one that is not well-formed."""
        message = SESSION_MESSAGE.validate_json(data)
        async with self._locks.of(where) as lock, lock:
            session = await self._received(where, message, owner)
        await self._carry_out(where, session, message)

    async def _received(self, where: SessionAddress, message: Received, owner: str) -> Session:
        """Return the session after a message, once what it leads to is stored."""
        reporting = _reporting_run(message)
        first = message if isinstance(message, First) else None
        is_confirmed = False
        while True:
            session = await self._settled(where, owner, first, reporting, from_leader=is_confirmed)
            events = decide.receive(session, message, owner)
            if events:
                written = await self._logs.append(where, session, owner, events)
                if written is not None:
                    return written
            elif is_confirmed:
                return session
            else:
                is_confirmed = True  # A replica may lag behind: what it does not know may have happened.

    async def on_dead_letter(self, where: SessionAddress, name: str) -> None:
        """End the call of a message that cannot be handled, so that its run goes on. `name`: of the message."""
        await self._tasks.fail_call(where.tenant, name)

    async def on_timer(self, where: SessionAddress, due: GroupDue, owner: str) -> None:
        """Pass a timer of the session on to it. `owner`: the timer's message."""
        body = SessionGroupDue(group_id=due.group_id, what=due.what).model_dump_json().encode()
        name = f"{due.what}-{due.group_id}"
        await self._bus.publish_surely(subjects.session_inbox(*where, name), body, f"{where.key}.{name}.{owner}")

    async def _settled(
        self,
        where: SessionAddress,
        owner: str,
        request: First | None = None,
        reporting: str | None = None,
        *,
        from_leader: bool = False,
    ) -> Session:
        """Return the session once it knows whether the run that has the turn has ended, or waits for people.

        A message of that run may still be on its way. `request`: it may begin the session, also one that continues from
        a run. `reporting`: the run whose message this is, which brings its state itself.
        """
        while True:
            session = await self._logs.load(where, from_leader=from_leader)
            if session.exists:
                current = session.current.run if session.current is not None else None
                events = [] if current in {None, reporting} else await self._news_of(where, session, str(current))
            else:
                events = await self._adopted(where, session, request) if request is not None else []
            if not events:
                return session
            await self._logs.append(where, session, owner, events)

    async def _news_of(self, where: SessionAddress, session: Session, run_id: str) -> decide.Events:
        """Return what follows for the session from the log of the run that has the turn: its end, or its pauses."""
        last = await last_record(self._bus, where.tenant, run_id)
        if last is None:
            return []
        is_ended = not TERMINAL.isdisjoint(types_in(last.headers))
        if not is_ended and PAUSES_HEADER not in (last.headers or {}):
            return []
        run = await self._runs.load(address := Address(where.tenant, run_id), fresh=True)
        if run.is_at_rest:
            self._runs.forget(address)
        message = session_facts.end_message(run_id, run, run.request) if is_ended else pauses.waits_message(run)
        return decide.receive(session, message, "") if message is not None else []

    async def _adopted(self, where: SessionAddress, session: Session, request: First) -> decide.Events:
        """Return the beginning of a session that continues from a run which was requested without one."""
        session_id = request.session_id or ""
        first = run_of_own_session(session_id)
        if first is None:
            return []
        run = await self._runs.load(Address(where.tenant, first), fresh=True)
        found = run.request
        if isinstance(request, SessionTaskCalled) and run.terminal is not None:
            return []  # Its session may have been deleted meanwhile.
        if found is None:
            waiting = await self._bus.last(subjects.REQUESTS, subjects.request(where.tenant, first))
            found = RunRequested.model_validate_json(waiting.data) if waiting is not None else None
        if found is None:
            return []
        return decide.adopt(session, session_id, found, session_facts.ended(first, run, run.request))

    async def _carry_out(self, where: SessionAddress, session: Session, cause: RunRequested | Received) -> None:
        commands = decide.commands(session, cause)
        of_tasks = [self._tasks.carry_out(where, session, cause)] if isinstance(cause, OfTasks) else []
        await asyncio.gather(*(self._execute(where, session, each) for each in commands), *of_tasks)

    async def _execute(self, where: SessionAddress, session: Session, command: Command) -> None:
        tenant = where.tenant
        match command:
            case WriteEntry():
                await index.write_session(self._bus, where, session)
            case Begin(run, seq):
                if await self._is_queued(where, run):
                    body = RunBegins(session_seq=seq).model_dump_json().encode()
                    await self._bus.publish_surely(subjects.inbox(tenant, run, "begin"), body, f"{run}.begin")
            case RequestSummary():
                request = summaries.summary_request(tenant, session, command)
                if request is not None:
                    await messages.request_run(self._bus, request)
            case Purge():
                await self._deletion.carry_out(where, session)
            case Forward() | Cancel() | Merged() | Refuse() | Attach():
                await self._control(where, session, command)
            case _:
                assert_never(command)

    async def _is_queued(self, where: SessionAddress, run: str) -> bool:
        """Whether the run waits for its turn, by its own log."""
        last = await last_record(self._bus, where.tenant, run)
        return last is not None and {*types_in(last.headers)} <= {"queued", "input_added"}

    async def _control(self, where: SessionAddress, session: Session, command: ToRun) -> None:
        """Send a run what follows for it from the state of its session."""
        message = _to_run(session, command)
        to, run = (command.into, command.request.run_id) if isinstance(command, Forward) else (command.run, command.run)
        subject = subjects.control(where.tenant, to, f"session-{message.kind}-{run}")
        await self._bus.publish_surely(subject, message.model_dump_json().encode(), f"{run}.session-{message.kind}")


def _to_run(session: Session, command: ToRun) -> ControlMessage:
    match command:
        case Forward(request, into):
            return forwarded(request, into)
        case Cancel(_, reason):
            return CancelRequested(reason=reason, session_id=session.session_id)
        case Merged(_, into):
            return RunMerged(into=into)
        case Refuse(_, fault):
            return RunRefused(fault=fault)
        case Attach():
            return SessionAttached(session_id=session.session_id)
        case _:
            assert_never(command)


def forwarded(request: RunRequested, into: str) -> InputRequested:
    """Return the text and images of a queued run, for the run that has the turn."""
    return InputRequested(
        id=request.run_id,
        text=request.query,
        images=request.images,
        run=request.run_id,
        into=into,
        session_id=request.session_id,
        by=request.key_id,
        user_id=request.user_id,
    )


def _reporting_run(message: Received) -> str | None:
    match message:
        case SessionRunEnded(ended=ended):
            return ended.run
        case SessionRunWaits(waits=waits):
            return waits.run
    return None
