"""Deletes a session of which no run is open: its runs, its artifacts, its entry in the index, and last its log.

Any planner may repeat any step. Its runs are deleted as single runs are (`services.planner.upkeep.deletions`); the
session's log names all of them. One record, `deleted`, stays on the log: a planner with an older state is refused.
"""

from contextlib import suppress

import structlog

from contracts.runs.requests import RunDeletion
from contracts.sessions.records import RunQueued, SessionDeleted
from contracts.sessions.tasks import Reported, TaskSpawned
from contracts.wire import keys, subjects
from contracts.wire.ids import unix_ms
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket
from services.planner.effects import messages
from services.planner.logs import index
from services.planner.logs.session_log import SessionAddress, SessionLogs
from services.planner.sessions.tasks.reports import report_id
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound
from services.shared.sessions.state import Session

logger = structlog.get_logger(__name__)

STORE_TIMEOUT_S = 2.0
ARTIFACTS_PER_PAGE = 500


class SessionDeletion:
    """Carries out the last steps of a session's deletion."""

    def __init__(self, bus: Bus, logs: SessionLogs) -> None:
        self._bus = bus
        self._logs = logs
        self._artifacts = ArtifactClient(bus, patience_s=STORE_TIMEOUT_S)

    async def carry_out(self, where: SessionAddress, session: Session) -> None:
        """Delete what is left of a session. Idempotent."""
        await self._delete_runs(where)
        await self._delete_contexts(where, session)
        await self._delete_artifacts(where, session.session_id)
        await messages.cancel_timers(self._bus, *where)
        await index.remove_session(self._bus, where, session)
        deleted = await self._logs.append(where, session, "", [SessionDeleted()])
        if deleted is None:
            return  # Another planner wrote it, or a message came meanwhile: its handling deletes the session.
        body = {"filter": subjects.session_log(*where), "seq": deleted.deleted_seq}
        await self._bus.api(f"STREAM.PURGE.{subjects.SESSIONS}", body)
        logger.info("session_deleted", tenant=where.tenant, session=where.key)

    async def _delete_runs(self, where: SessionAddress) -> None:
        bucket = Bucket(self._bus, keys.RUNS_BUCKET)
        runs: dict[str, int | None] = {}
        for record in await self._logs.whole(where):
            for event in record.events:
                match event:
                    case RunQueued():
                        runs[event.run] = event.requested_at or record.at
                    case TaskSpawned():
                        runs[event.task_id] = event.requested_at
                    case Reported():
                        runs[event.report_id] = None  # It may never have joined the session.
        for run, requested_at in runs.items():
            with suppress(Outdated):
                deletion = RunDeletion(at=unix_ms(), requested_at=requested_at)
                await bucket.create(keys.run_deletion(where.tenant, run), deletion)

    async def _delete_contexts(self, where: SessionAddress, session: Session) -> None:
        """Delete what was kept for reports that are not requested any more."""
        for group in session.background.groups.values():
            for report in {report_id(session.session_id, group, task_id) for task_id in group.tasks}:
                await messages.purge(self._bus, subjects.RUNS, subjects.context(where.tenant, report))

    async def _delete_artifacts(self, where: SessionAddress, session_id: str) -> None:
        try:
            await delete_artifacts(self._artifacts, where.tenant, session=session_id)
        except ArtifactFailed as error:
            # Those of its runs are deleted with them, as soon as the store answers.
            logger.warning("session_artifacts_left", tenant=where.tenant, session=where.key, error=str(error))


async def delete_artifacts(
    artifacts: ArtifactClient, tenant: str, *, run: str | None = None, session: str | None = None
) -> None:
    """Delete the artifacts and images of a run, or of a session. Raises ArtifactFailed."""
    cursor: int | None = 0
    while cursor is not None:
        page = await artifacts.list(tenant, run=run, session=session, limit=ARTIFACTS_PER_PAGE, cursor=cursor)
        for stored in page.artifacts:
            with suppress(ArtifactNotFound):  # Another planner deleted it first.
                await artifacts.delete(tenant, stored.ref.artifact_id)
        cursor = page.next_cursor
