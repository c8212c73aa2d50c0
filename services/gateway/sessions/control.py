"""Messages to a session that exists: set its context, change its tasks, delete it."""

import asyncio

import structlog

from contracts.sessions.records import (
    MAX_CONTEXT_BYTES,
    ContextSet,
    SessionContextRequested,
    SessionDeletionRequested,
    SessionEvent,
)
from contracts.sessions.tasks import SessionTaskControl
from contracts.wire import keys, subjects
from contracts.wire.ids import new_id, run_of_own_session
from services.gateway.auth.caller import Caller
from services.gateway.errors import InvalidInput, SessionDeleting
from services.gateway.runs.control import ANSWER_WAIT_S
from services.gateway.runs.control_answers import ControlAnswers, context_id
from services.gateway.runs.deletions import Deletions
from services.gateway.runs.writer import MessageWriter
from services.shared.redaction.placeholders import wire_size
from services.shared.sessions.fold import after
from services.shared.sessions.state import Session

logger = structlog.get_logger(__name__)

ToSession = SessionContextRequested | SessionDeletionRequested | SessionTaskControl


class SessionControl:
    """Writes messages to sessions."""

    def __init__(self, writer: MessageWriter, deletions: Deletions, answers: ControlAnswers[SessionEvent]) -> None:
        self._writer = writer
        self._deletions = deletions
        self._answers = answers

    async def delete(self, caller: Caller, session: Session) -> None:
        """Request the deletion of a session, or of the only run of one without a log. Raises TryAgain."""
        run = run_of_own_session(session.session_id)
        if run is not None and not session.seq:
            await self._deletions.delete(caller.tenant, run, session.created_at)
            return
        await self._send(caller, session, "delete", SessionDeletionRequested(by=caller.key_id))
        logger.info("session_deletion_requested", session_id=session.session_id, tenant=caller.tenant)

    async def set_context(self, caller: Caller, session: Session, values: dict[str, object]) -> bool:
        """Request new values, and return whether they count already. A value of None removes its name.

        Raises InvalidInput, SessionDeleting and TryAgain.
        """
        if session.is_deleting:
            raise SessionDeleting
        if wire_size(after(session, [ContextSet(values=values)]).context) > MAX_CONTEXT_BYTES:
            raise InvalidInput("values", f"the context of a session must not exceed {MAX_CONTEXT_BYTES} bytes")
        requested = SessionContextRequested(
            values=values, session_id=session.session_id, by=caller.key_id, user_id=caller.user_id or session.user_id
        )
        name, request_id = f"context-{new_id()}", context_id(requested.by, values)
        return await self._is_answered(caller, session, name, requested, request_id)

    async def change_tasks(self, caller: Caller, session: Session, control: SessionTaskControl) -> None:
        """Request a change of a task or group, and return once the session has the answer, or after 5 s.

        The answer is part of the session's state. Raises SessionDeleting and TryAgain.
        """
        if session.is_deleting:
            raise SessionDeleting
        await self._is_answered(caller, session, f"task-{control.id}", control, control.id)

    async def _is_answered(
        self,
        caller: Caller,
        session: Session,
        name: str,
        message: SessionContextRequested | SessionTaskControl,
        request_id: str,
    ) -> bool:
        """Send a message, and return whether the session has answered it within 5 s. Raises TryAgain."""
        live = subjects.live_session(caller.tenant, keys.session_key(session.session_id))
        async with self._answers.expected(live, request_id) as answer:
            await self._send(caller, session, name, message)
            try:
                async with asyncio.timeout(ANSWER_WAIT_S):
                    await answer
            except TimeoutError:
                return False
        return True

    async def _send(self, caller: Caller, session: Session, name: str, message: ToSession) -> None:
        """Store a message to a session. Raises TryAgain."""
        key = keys.session_key(session.session_id)
        subject = subjects.session_inbox(caller.tenant, key, name)
        # The id is new each time: a session that was deleted may have begun anew meanwhile.
        await self._writer.store(subject, message.model_dump_json().encode(), f"{key}-{name}-{new_id()}")
