"""Carries out what happens in sessions: a run joins one, or a message of a run or a person arrives.

Rule 1: a run's log is written first, then that of its session, by the same handling, and then the delivery is
acknowledged. Other messages to sessions come through INBOX.
Rule 2: a session adds each fact once; a redelivery changes nothing, and repeats the commands. These are idempotent for
ever, also when NATS no longer knows their ids: a run that has a log ignores a second request, a call that is completed
a second outcome, and a group that has ended its timer.
Rule 3: before a session with a current run decides anything, that run's own log is asked whether it has ended: its
message may still be under way. Not so for what other runs say of themselves, which leaves the turn as it is.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import assert_never

import structlog

from contracts.runs import inbox
from contracts.runs.events import TERMINAL
from contracts.runs.pages import ManifestEntry, PageView
from contracts.runs.requests import RunDeletion, RunRequested, RunStatus
from contracts.sessions.proposals import SessionProposalControl
from contracts.sessions.records import SessionContextRequested, SessionDeleted, SessionRunEnded, SessionRunWaits
from contracts.sessions.tasks import SessionGroupDue, SessionTaskCalled, SessionTaskMessage
from contracts.wire import keys, names, subjects
from contracts.wire.names import run_of_own_session, unix_ms
from contracts.wire.records import PAUSES_HEADER, types_in
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket
from services.planner.effects import messages
from services.planner.logs import index
from services.planner.logs.offload import TaskResults
from services.planner.logs.ownership_watch import Address
from services.planner.logs.run_log import RunLogs
from services.planner.logs.session_log import SessionAddress, SessionLogs
from services.planner.run.ending import terminal
from services.planner.run.people import pauses
from services.planner.run.state.run import Busy, Place, Waiting
from services.planner.sessions import decide, memory, proposals
from services.planner.sessions.tasks import commands as task_commands
from services.planner.sessions.tasks import reports
from services.planner.sessions.tasks.reports import report_id, report_request
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed
from services.shared.runs.last_record import last_record
from services.shared.sessions.fold import MAX_OLDER_RUNS
from services.shared.sessions.proposals import notes
from services.shared.sessions.state import Session
from services.shared.sessions.task_fold import recalled

logger = structlog.get_logger(__name__)

STORE_TIMEOUT_S = 2.0
First = RunRequested | SessionContextRequested | SessionTaskCalled | SessionProposalControl
"""What may begin a session."""
Cause = RunRequested | decide.Received
OfTasks = SessionTaskMessage | SessionTaskCalled | SessionRunEnded | SessionRunWaits
"""What may change tasks of a session."""


class Sessions:
    """The sessions of all tenants, over one bus."""

    def __init__(self, bus: Bus, runs: RunLogs, logs: SessionLogs) -> None:
        self._bus = bus
        self._runs = runs
        self._logs = logs
        self._entries = index.SessionEntries(bus)
        self._results = TaskResults(bus)
        self._artifacts = ArtifactClient(bus, patience_s=STORE_TIMEOUT_S)
        self._opening = Counter[SessionAddress]()
        """Runs whose handling will write the entry of their session soon, or end them."""

    async def enter(self, request: RunRequested, owner: str, *, is_queued: bool) -> Place:
        """Let a run join its session, and return its place. `owner`: the message of the request.

        Unless `is_queued`, the run joins only if it begins at once; `Busy` otherwise.
        """
        address = SessionAddress.of(request.tenant, request.session_id or "")

        def offered(session: Session) -> decide.Events:
            joins = is_queued or decide.begins_at_once(session, request)
            return decide.offer(session, request) if joins else []

        async with self._logs.lock(address):
            session = await self._after(address, owner, request, offered)
        if decide.place_of(session, request.run_id) is None:
            return Busy()
        await self._carry_out(address, session, request)
        entry = session.queued(request.run_id)
        if entry is not None and entry.yielded_seq and not is_queued:
            return Busy()  # It had the turn before its log said anything.
        return decide.place_of(session, request.run_id) or Waiting()

    async def _after(
        self, address: SessionAddress, owner: str, cause: Cause, decided: Callable[[Session], decide.Events]
    ) -> Session:
        """Return the session after a request or message, once what is decided from the session is stored."""
        is_confirmed = False
        while True:
            session = await self._up_to_date(address, owner, cause, is_confirmed=is_confirmed)
            if events := decided(session):
                if (written := await self._logs.append(address, session, owner, events)) is not None:
                    return written
            elif is_confirmed:
                return session
            else:
                is_confirmed = True  # What is not known here may have happened.

    @contextmanager
    def entry_follows(self, request: RunRequested) -> Iterator[None]:
        """Within this, no message writes the entry of a run's session: `write_entry` follows, or the run's end."""
        address = SessionAddress.of(request.tenant, request.session_id or "")
        self._opening[address] += 1
        try:
            yield
        finally:
            self._opening[address] -= 1
            self._opening += Counter()  # Only what is above zero is kept.

    async def write_entry(self, request: RunRequested) -> None:
        """Write the index entry of a run's session, unless it is being deleted."""
        if request.session_id is not None:
            address = SessionAddress.of(request.tenant, request.session_id)
            session = await self._logs.load(address)
            if session.exists and not session.is_deleting:
                await self._entries.write(address, session)

    async def with_proposals(self, request: RunRequested, view: PageView, sequence: int) -> PageView:
        """Return a page with the payloads of the conversation, and what became of its proposals.

        `sequence`: of the record up to which the run knows the conversation.
        """
        session = await self._logs.at(SessionAddress.of(request.tenant, request.session_id or ""), sequence)
        manifest = [
            ManifestEntry(payload_id=each.payload_id, summary=each.summary) for each in session.proposals.values()
        ]
        changes = notes(session.proposals, session.previous_turn_seq)
        return view.model_copy(
            update={"manifest": manifest, "notes": changes, "pending_proposal": session.pending_proposal}
        )

    async def on_message(
        self, address: SessionAddress, message: decide.Received, owner: str
    ) -> inbox.CallFinished | None:
        """Handle a message to a session. `owner`: it, or the message whose handling by a run leads to it.

        Return the outcome of a call about tasks, unless its run may wait for them.
        """
        async with self._logs.lock(address):
            session = await self._after(address, owner, message, lambda known: decide.receive(known, message, owner))
        return await self._carry_out(address, session, message)

    async def on_dead_letter(self, address: SessionAddress, name: str) -> None:
        """Give back a proposal whose apply was recorded and not requested, or has ended without a word of it.

        `name`: of the message that cannot be handled, `proposal-<id>` or `<run>-ended`; any other changes nothing.
        """
        async with self._logs.lock(address):
            while True:
                session = await self._logs.load(address, from_leader=True)
                proposal = session.proposals.get(name.removeprefix("proposal-"))
                job = proposal.job if proposal is not None else name.removesuffix("-ended")
                released = proposals.apply_ended(session, job, "poisoned")
                if not released:
                    return
                if proposal is not None:  # Its apply may be on its way.
                    request = subjects.request(address.tenant, str(job))
                    if await self._bus.last_from_leader(subjects.REQUESTS, request) is not None:
                        return
                    if await last_record(self._bus, address.tenant, str(job)) is not None:
                        return
                if await self._logs.append(address, session, "", released) is not None:
                    return

    async def on_timer(self, address: SessionAddress, due: inbox.GroupDue, owner: str) -> None:
        """Pass a timer of the session on to it. `owner`: the timer's message."""
        body = SessionGroupDue(group_id=due.group_id, what=due.what)
        name = f"{due.what}-{due.group_id}"
        await self._bus.publish_surely(subjects.session_inbox(*address, name), body, f"{address.key}.{name}.{owner}")

    async def _up_to_date(self, address: SessionAddress, owner: str, cause: Cause, *, is_confirmed: bool) -> Session:
        """Return the session once it knows whether the run that has the turn has ended, or waits for people.

        A message of that run may still be on its way, unless it is `cause`. Unless `is_confirmed`, a session that an
        append would show to be old may be returned.
        """
        reporting = cause.run if isinstance(cause, SessionTaskCalled) else None
        while True:
            session = await self._logs.load(address, from_leader=is_confirmed, may_be_old=not is_confirmed)
            if isinstance(cause, SessionRunEnded | SessionRunWaits):
                return session
            if session.exists:
                current = session.current.run if session.current is not None else None
                events = [] if current in {None, reporting} else await self._news_of(address, session, str(current))
            else:
                events = await self._adopted(address, session, cause) if isinstance(cause, First) else []
            if not events:
                return session
            await self._logs.append(address, session, owner, events)

    async def _news_of(self, address: SessionAddress, session: Session, run_id: str) -> decide.Events:
        """Return what follows for the session from the log of the run that has the turn: its end, or its pauses."""
        last = await last_record(self._bus, address.tenant, run_id)
        if last is None:
            return []
        is_ended = not TERMINAL.isdisjoint(types_in(last.headers))
        if not is_ended and PAUSES_HEADER not in (last.headers or {}):
            return []
        run = await self._runs.load(of_run := Address(address.tenant, run_id), fresh=True)
        if run.is_at_rest:
            self._runs.forget(of_run)
        message = terminal.end_message(run_id, run, run.request) if is_ended else pauses.waits_message(run)
        return decide.receive(session, message, "") if message is not None else []

    async def _adopted(self, address: SessionAddress, session: Session, request: First) -> decide.Events:
        """Return the beginning of a session that continues from a run which was requested without one."""
        session_id = request.session_id or ""
        first = run_of_own_session(session_id)
        if first is None:
            return []
        run = await self._runs.load(Address(address.tenant, first), fresh=True)
        found = run.request
        if isinstance(request, SessionTaskCalled) and run.terminal is not None:
            return []  # Its session may have been deleted meanwhile.
        if found is None:
            waiting = await self._bus.last(subjects.REQUESTS, subjects.request(address.tenant, first))
            found = RunRequested.model_validate_json(waiting.data) if waiting is not None else None
        if found is None:
            return []
        return decide.adopt(session, session_id, found, terminal.ended(first, run, run.request))

    async def _carry_out(self, address: SessionAddress, session: Session, cause: Cause) -> inbox.CallFinished | None:
        """Carry out what follows from a request or a message, after it was handled.

        Return the outcome of a call about tasks. That of a run that may wait comes through INBOX: nothing owns the
        message of the call once the run waits, so what only its handling knew could be lost.
        """
        found = [self._execute(address, session, each) for each in decide.commands(session, cause)]
        of_caller: task_commands.AnswerCall | None = None
        if isinstance(cause, OfTasks):
            old = reports.dropped_task(session, cause) if isinstance(cause, SessionTaskCalled) else None
            if old is not None:
                background = recalled(session.background, await self._logs.whole(address), old)
                session = session.model_copy(update={"background": background})
            asked = cause if isinstance(cause, SessionTaskCalled) and not cause.args.get("retain_turn") else None
            for each in task_commands.commands(session, cause):
                answer = each if isinstance(each, task_commands.AnswerCall) and asked is not None else None
                if answer and asked and (answer.run, answer.finished.call_id) == (asked.run, asked.call_id):
                    of_caller = answer
                else:
                    found.append(self._execute(address, session, each))
        await asyncio.gather(*found)
        if of_caller is None:
            return None
        return await self._results.of_call(address.tenant, session, of_caller.run, of_caller.finished, of_caller.tasks)

    async def _execute(  # noqa: C901, PLR0912, one case for each command
        self, address: SessionAddress, session: Session, command: decide.Command | task_commands.TaskCommand
    ) -> None:
        tenant = address.tenant
        match command:
            case decide.WriteEntry():
                if not self._opening[address]:
                    await self._entries.write(address, session)
            case decide.Begin(run, seq, again):
                # The first `RunBegins` is sent only to a run whose log says that it is still queued.
                last = None if again else await last_record(self._bus, tenant, run)
                if again or (last is not None and {*types_in(last.headers)} <= {"queued", "input_added"}):
                    body, name = inbox.RunBegins(session_seq=seq), f"begin-{seq}" if again else "begin"
                    await self._bus.publish_surely(subjects.inbox(tenant, run, name), body, f"{run}.{name}")
            case proposals.RequestApply():
                await messages.request_run(self._bus, command.request)
            case memory.RequestSummary():
                request = memory.summary_request(tenant, session, command)
                if request is not None:
                    await messages.request_run(self._bus, request)
            case decide.Trim():
                await self._logs.trim(address)
            case decide.Purge():
                await self._delete(address, session)
            case decide.Tell(run, message, about):
                subject = subjects.control(tenant, run, f"session-{message.kind}-{about}")
                await self._bus.publish_surely(subject, message, f"{about}.session-{message.kind}")
            case task_commands.StartTask(request, report_id):
                # A report's `tool_context` is stored first: the task may end at once.
                if report_id is not None and request.tool_context:
                    await self._runs.keep_context(Address(tenant, report_id), request.tool_context)
                await messages.request_run(self._bus, request)
            case task_commands.AnswerCall(run, finished, tasks):
                finished = await self._results.of_call(tenant, session, run, finished, tasks)
                subject = subjects.inbox(tenant, run, names.outcome_of(finished.call_id))
                await self._bus.publish_surely(subject, finished, names.round_key(run, finished.call_id))
            case task_commands.CancelTask(task_id):
                cancel = inbox.CancelRequested(reason="the task was cancelled", session_id=session.session_id)
                await self._execute(address, session, decide.Tell(task_id, cancel, task_id))
            case task_commands.RequestReport(report):
                context = await self._runs.context(Address(tenant, report.report_id))
                of_report = report_request(tenant, session, report, context)
                if of_report is not None:
                    group = session.background.groups.get(report.group_id)
                    tasks = task_commands.readable(session, group) if group is not None else ()
                    await messages.request_run(self._bus, await self._results.of_report(of_report, tasks))
            case task_commands.DropReportContext(report_id):
                await messages.purge(self._bus, subjects.RUNS, subjects.context(tenant, report_id))
            case task_commands.SetGroupTimer(what, group_id, at):
                due = inbox.GroupDue(group_id=group_id, what=what)
                await messages.schedule(self._bus, *address, f"{what}-{group_id}", due, at)
            case task_commands.TellRun(run, name, message):
                await self._bus.publish_surely(subjects.control(tenant, run, name), message, f"{run}.{name}")
            case _:
                assert_never(command)

    async def _delete(self, address: SessionAddress, session: Session) -> None:
        """Delete what is left of a session of which no run is open, or which is deleted. Any planner may repeat a step.

        Its runs are deleted as single runs are (`services.planner.upkeep.deletions`). One record, `deleted`, stays on
        the log: a planner with an older state is refused.
        """
        if not session.exists:
            await self._logs.purge(address, session.deleted_seq)
            return
        tenant = address.tenant
        await self._delete_runs(address, session)
        for group in session.background.groups.values():  # Kept for reports that are not requested any more.
            for report in {report_id(session.session_id, group, task_id) for task_id in group.tasks}:
                await messages.purge(self._bus, subjects.RUNS, subjects.context(tenant, report))
        try:
            await self._artifacts.delete_all(tenant, session=session.session_id)
        except ArtifactFailed as error:
            # Those of its runs are deleted with them, as soon as the store answers.
            logger.warning("session_artifacts_left", tenant=tenant, session=address.key, error=str(error))
        await messages.cancel_timers(self._bus, *address)
        await index.remove_session(self._bus, address, session)
        deleted = await self._logs.append(address, session, "", [SessionDeleted()])
        if deleted is None:
            return  # Another planner wrote it, or a message came meanwhile: its handling deletes the session.
        await self._logs.purge(address, deleted.deleted_seq)
        logger.info("session_deleted", tenant=tenant, session=address.key)

    async def _delete_runs(self, address: SessionAddress, session: Session) -> None:
        """Delete the runs that the session's log names, and, where it has lost too many names, those in the index."""
        bucket = Bucket(self._bus, keys.RUNS_BUCKET)
        runs = await self._logs.runs(address, session)
        if len(session.older_runs) > MAX_OLDER_RUNS:
            async for page in bucket.pages():
                of_tenant = [entry.parsed(RunStatus) for entry in page if entry.key.startswith(f"{address.tenant}.")]
                found = [each for each in of_tenant if each is not None and each.session_id == session.session_id]
                runs |= {each.run_id: each.requested_at for each in found}
        for run, requested_at in runs.items():
            with suppress(Outdated):
                deletion = RunDeletion(at=unix_ms(), requested_at=requested_at)
                await bucket.create(keys.run_deletion(address.tenant, run), deletion)
