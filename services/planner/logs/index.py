"""The index of runs and sessions (KV `runs`). It is derived from their logs.

A run: its first entry is only written where none exists, that of a later state once the log was read after the entry
that it replaces, and the status of an ended run replaces any entry. A session: only a newer state replaces an entry.
All functions are idempotent.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from contracts.runs.events import PayloadProposed, RunEvent
from contracts.runs.requests import RunRequested, RunStatus
from contracts.sessions.proposals import ProposalPlace
from contracts.sessions.records import SessionEntry
from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket
from services.planner.logs.session_log import MAX_CACHED_SESSIONS, SessionAddress
from services.planner.run.state.run import Run
from services.runtime.newest import Newest
from services.shared.runs.waiting import status_of
from services.shared.sessions.state import Session


def _run_key(request: RunRequested) -> str:
    return keys.run_key(request.tenant, request.requested_at, request.run_id)


def _status(run: Run, request: RunRequested) -> RunStatus:
    return status_of(
        request.run_id,
        request,
        run.terminal,
        state=run.state,
        waits=run.waits,
        started_at=run.started_at or None,
        ended_at=run.ended_at or None,
    )


async def create_run(bus: Bus, run: Run, request: RunRequested) -> None:
    """Write the entry of a run, if it has none."""
    with suppress(Outdated):
        await Bucket(bus, keys.RUNS_BUCKET).create(_run_key(request), _status(run, request))


async def rewrite_run(bus: Bus, request: RunRequested, load: Callable[[], Awaitable[Run]]) -> None:
    """Write the entry of a run that has begun, waits or continues, unless the run has ended. `load` reads its log.

    The log is read after the entry, which is written even if it stays the same: a process that was stopped with an
    older state is refused.
    """
    bucket, key = Bucket(bus, keys.RUNS_BUCKET), _run_key(request)
    while True:
        entry = await bucket.get(key)
        run = await load()
        if run.terminal is not None:
            return
        with suppress(Outdated):
            await bucket.update(key, _status(run, request), revision=entry.sequence)
            return


async def end_run(bus: Bus, run: Run, request: RunRequested) -> None:
    """Write the entry of an ended run."""
    await Bucket(bus, keys.RUNS_BUCKET).put(_run_key(request), _status(run, request))


async def place_proposals(bus: Bus, tenant: str, run: str, events: Iterable[RunEvent]) -> None:
    """Write where the proposals of a record are found, before the record, so that its readers find them."""
    for event in events:
        if isinstance(event, PayloadProposed):
            await Bucket(bus, keys.RUNS_BUCKET).put(keys.proposal_entry(tenant, event.payload_id, run), ProposalPlace())


def entry_of(address: SessionAddress, session: Session) -> SessionEntry:
    """Describe a session for lists."""
    return SessionEntry(
        session_id=session.session_id,
        key=address.key,
        user_id=session.user_id,
        created_at=session.created_at,
        updated_at=session.updated_at,
        runs=session.runs,
        current_run=session.current.run if session.current is not None else None,
        queued_runs=len(session.queue),
        open_pauses=len(session.pauses),
        open_tasks=len(session.background.open_tasks()),
        open_decisions=sum(group.awaits_decision for group in session.background.groups.values()),
        pending_proposal=session.pending_proposal,
        usage=session.usage,
    )


class SessionEntries:
    """Writes the entries of sessions, and knows those that it has read or written last, with their revisions."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, keys.RUNS_BUCKET)
        self._known = Newest[str, tuple[int, SessionEntry | None]](MAX_CACHED_SESSIONS)

    async def write(self, address: SessionAddress, session: Session) -> None:
        """Write the entry of a session, unless a newer one is there."""
        key, entry = keys.session_entry_key(address.tenant, session.created_at, address.key), entry_of(address, session)
        revision, stored = self._known.get(key, (0, None))
        is_known = key in self._known or session.runs == 1  # A new session has none, as a rule.
        while True:
            if not is_known:
                found = await self._bucket.get(key)
                revision, stored = found.sequence, found.parsed(SessionEntry)
            if stored is not None and (stored == entry or stored.updated_at > entry.updated_at):
                return
            try:
                self._known[key] = await self._bucket.update(key, entry, revision=revision), entry
            except Outdated:
                is_known = False
                continue
            return


async def remove_session(bus: Bus, address: SessionAddress, session: Session) -> None:
    """Remove the entry of a session that is deleted."""
    await Bucket(bus, keys.RUNS_BUCKET).purge(keys.session_entry_key(address.tenant, session.created_at, address.key))
