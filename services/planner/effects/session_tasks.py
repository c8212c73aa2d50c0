"""Carries out what follows from the tasks of a session: requests runs, answers calls, cancels, sets messages.

Every command is idempotent, for ever: a run that has a log ignores a second request, a settled call a second outcome,
and a group that has ended its timer. So a redelivery may repeat all of them, also when NATS no longer knows their ids.
"""

import asyncio
from typing import assert_never

from contracts.runs.inbox import CallFinished, CancelRequested, RunTaskSettled
from contracts.sessions.records import SessionRunEnded
from contracts.sessions.tasks import SessionTaskCalled, SessionTaskMessage
from contracts.wire import names, subjects
from contracts.wire.faults import Fault
from services.messaging.connection import Bus
from services.planner.effects import messages
from services.planner.logs.ownership_watch import Address
from services.planner.logs.run_log import RunLogs
from services.planner.logs.session_log import SessionAddress, SessionLogs
from services.planner.sessions.tasks import answers
from services.planner.sessions.tasks.commands import (
    AnswerCall,
    CancelTask,
    DropReportContext,
    RequestReport,
    SetGroupTimer,
    SettleParent,
    StartTask,
    TaskCommand,
    commands,
)
from services.planner.sessions.tasks.reports import report_request
from services.shared.sessions.old_tasks import recalled
from services.shared.sessions.state import Session

OfTasks = SessionTaskMessage | SessionRunEnded
"""What may change tasks of a session."""


class SessionTasks:
    """The tasks of all sessions, over one bus."""

    def __init__(self, bus: Bus, runs: RunLogs, logs: SessionLogs) -> None:
        self._bus = bus
        self._runs = runs
        self._logs = logs

    async def carry_out(self, where: SessionAddress, session: Session, cause: OfTasks) -> None:
        """Carry out what follows from a message to a session, after it was handled."""
        old = answers.dropped_task(session, cause) if isinstance(cause, SessionTaskCalled) else None
        if old is not None:
            background = recalled(session.background, await self._logs.whole(where), old)
            session = session.model_copy(update={"background": background})
        await asyncio.gather(*(self._execute(where, session, each) for each in commands(session, cause)))

    async def fail_call(self, tenant: str, name: str) -> None:
        """End the call that the name of its message names, `<run>-task-<call id>`; any other name changes nothing."""
        run, _, call_id = name.partition("-task-")
        if call_id:
            fault = Fault(code="poisoned", reason="the call could not be handled")
            failed = CallFinished(call_id=call_id, tool="task.spawn", status="failed", failure=fault)
            await self._answer(tenant, run, failed)

    async def _execute(self, where: SessionAddress, session: Session, command: TaskCommand) -> None:
        tenant = where.tenant
        match command:
            case StartTask():
                await self._start(tenant, command)
            case AnswerCall(run, finished):
                await self._answer(tenant, run, finished)
            case CancelTask(task_id, reason):
                body = CancelRequested(reason=reason, session_id=session.session_id).model_dump_json().encode()
                subject = subjects.control(tenant, task_id, f"session-cancel-{task_id}")
                await self._bus.publish_surely(subject, body, f"{task_id}.session-cancel")
            case RequestReport(report):
                context = await self._runs.context(Address(tenant, report.report_id))
                request = report_request(tenant, session, report, context)
                if request is not None:
                    await messages.request_run(self._bus, request)
            case DropReportContext(report_id):
                await messages.purge(self._bus, subjects.RUNS, subjects.context(tenant, report_id))
            case SetGroupTimer(what, group_id, at):
                await messages.set_group_timer(self._bus, *where, what, group_id, at)
            case SettleParent(run, call_id, task_id, spent):
                body = RunTaskSettled(call_id=call_id, task_id=task_id, spent=spent).model_dump_json().encode()
                subject = subjects.control(tenant, run, f"task_settled-{call_id}")
                await self._bus.publish_surely(subject, body, f"{task_id}.settled")
            case _:
                assert_never(command)

    async def _start(self, tenant: str, command: StartTask) -> None:
        """Request a task's run. A report's `tool_context` is stored first: the task may end at once."""
        request = command.request
        if command.report_id is not None and request.tool_context:
            await self._runs.keep_context(Address(tenant, command.report_id), request.tool_context)
        await messages.request_run(self._bus, request)

    async def _answer(self, tenant: str, run: str, finished: CallFinished) -> None:
        subject = subjects.inbox(tenant, run, names.outcome_of(finished.call_id))
        message_id = names.round_key(run, finished.call_id)
        await self._bus.publish_surely(subject, finished.model_dump_json().encode(), message_id)
