"""Messages to a session that exists: set its context, change its tasks, delete it."""

import asyncio

import structlog

from contracts.sessions import records
from contracts.sessions.proposals import SessionProposalControl
from contracts.sessions.tasks import SessionTaskControl
from contracts.wire import keys, subjects
from contracts.wire.names import new_id, run_of_own_session
from services.gateway.auth.caller import Caller
from services.gateway.errors import InvalidInput, SessionDeleting
from services.gateway.parts import Parts
from services.gateway.runs import messages
from services.shared.redaction.placeholders import wire_size
from services.shared.sessions.fold import after
from services.shared.sessions.state import Session

logger = structlog.get_logger(__name__)

ToSession = (
    records.SessionContextRequested | records.SessionDeletionRequested | SessionTaskControl | SessionProposalControl
)


async def delete(parts: Parts, caller: Caller, session: Session) -> None:
    """Request the deletion of a session, or of the only run of one without a log. Raises TryAgain."""
    run = run_of_own_session(session.session_id)
    if run is not None and not session.seq:
        await parts.deletions.delete(caller.tenant, run, session.created_at)
        return
    await _send(parts, caller, session.session_id, "delete", records.SessionDeletionRequested(by=caller.key_id))
    logger.info("session_deletion_requested", session_id=session.session_id, tenant=caller.tenant)


async def set_context(parts: Parts, caller: Caller, session: Session, values: dict[str, object]) -> bool:
    """Request new values, and return whether they count already. A value of None removes its name.

    Raises InvalidInput, SessionDeleting and TryAgain.
    """
    if session.is_deleting:
        raise SessionDeleting
    if wire_size(after(session, [records.ContextSet(values=values)]).context) > records.MAX_CONTEXT_BYTES:
        raise InvalidInput("values", f"the context of a session must not exceed {records.MAX_CONTEXT_BYTES} bytes")
    requested = records.SessionContextRequested(
        values=values, session_id=session.session_id, by=caller.key_id, user_id=caller.user_id or session.user_id
    )
    request_id = messages.context_id(requested.by, values)
    return await _is_answered(parts, caller, session, f"context-{new_id()}", requested, request_id)


async def change_tasks(parts: Parts, caller: Caller, session: Session, control: SessionTaskControl) -> None:
    """Request a change of a task or group, and return once the session has the answer, or after 5 s.

    The answer is part of the session's state. Raises SessionDeleting and TryAgain.
    """
    if session.is_deleting:
        raise SessionDeleting
    await _is_answered(parts, caller, session, f"task-{control.id}", control, control.id)


async def decide_proposal(parts: Parts, caller: Caller, message: SessionProposalControl) -> None:
    """Send a person's decision about a proposal. What comes of it is on the session's log. Raises TryAgain."""
    await _send(parts, caller, message.session_id, f"proposal-{message.proposal_id}", message)


async def _is_answered(
    parts: Parts, caller: Caller, session: Session, name: str, message: ToSession, request_id: str
) -> bool:
    """Send a message, and return whether the session has answered it within 5 s. Raises TryAgain."""
    live = subjects.live_session(caller.tenant, keys.session_key(session.session_id))
    async with parts.session_answers.expected(live, request_id) as answer:
        await _send(parts, caller, session.session_id, name, message)
        try:
            async with asyncio.timeout(messages.ANSWER_WAIT_S):
                await answer
        except TimeoutError:
            return False
    return True


async def _send(parts: Parts, caller: Caller, session_id: str, name: str, message: ToSession) -> None:
    """Store a message to a session. Raises TryAgain."""
    key = keys.session_key(session_id)
    subject = subjects.session_inbox(caller.tenant, key, name)
    # The id is new each time: a session that was deleted may have begun anew meanwhile.
    await parts.writer.store(subject, message.model_dump_json().encode(), f"{key}-{name}-{new_id()}")
