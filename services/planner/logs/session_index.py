"""The index of sessions (KV `runs`). It is derived from their logs; only a newer state replaces an entry."""

from contracts.sessions.records import SessionEntry
from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.errors import Outdated
from services.messaging.kv import Bucket
from services.planner.logs.session_log import SessionAddress
from services.shared.sessions.state import Session


def entry_of(where: SessionAddress, session: Session) -> SessionEntry:
    """Describe a session for lists."""
    return SessionEntry(
        session_id=session.session_id,
        key=where.key,
        user_id=session.user_id,
        created_at=session.created_at,
        updated_at=session.updated_at,
        runs=session.runs,
        current_run=session.current.run if session.current is not None else None,
        queued_runs=len(session.queue),
        open_pauses=len(session.pauses),
        open_tasks=len(session.background.open_tasks()),
        open_decisions=sum(group.awaits_decision for group in session.background.groups.values()),
        usage=session.usage,
    )


async def write(bus: Bus, where: SessionAddress, session: Session) -> None:
    """Write the entry of a session, unless a newer one is there. Idempotent."""
    key, entry = keys.session_entry_key(where.tenant, session.created_at, where.key), entry_of(where, session)
    bucket = Bucket(bus, keys.RUNS_BUCKET)
    while True:
        found = await bucket.get(key)
        known = found.parsed(SessionEntry)
        if known is not None and (known == entry or known.updated_at > entry.updated_at):
            return
        try:
            await bucket.update(key, entry, revision=found.sequence)
        except Outdated:
            continue
        return


async def remove(bus: Bus, where: SessionAddress, session: Session) -> None:
    """Remove the entry of a session that is deleted. Idempotent."""
    await Bucket(bus, keys.RUNS_BUCKET).purge(keys.session_entry_key(where.tenant, session.created_at, where.key))
