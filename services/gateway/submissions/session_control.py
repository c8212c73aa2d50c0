"""Messages to a session that exists: set its context, change its tasks, delete it.

What a message leads to is an event on the session's log, which is received live. So the gateway subscribes before it
sends the message.
"""

import asyncio
from collections.abc import Callable

import structlog
from nats.aio.msg import Msg

from contracts import keys, subjects
from contracts.ids import new_id, run_of_own_session
from contracts.sessions import (
    MAX_CONTEXT_BYTES,
    ContextSet,
    SessionContextRequested,
    SessionDeletionRequested,
    SessionEvent,
    SessionRecord,
)
from contracts.tasks import SessionTaskControl, TaskControlDone, TaskControlRefused
from services.gateway.auth.caller import Caller
from services.gateway.errors import InvalidInput, SessionDeleting
from services.gateway.stored_runs.deletions import Deletions
from services.gateway.stored_runs.stored_run import parsed
from services.messaging.connection import Bus
from services.messaging.direct_get import checked, sequence_of
from services.shared.redaction import wire_size
from services.shared.session_state import Session, after

from .control import ANSWER_WAIT_S
from .writer import MessageWriter

logger = structlog.get_logger(__name__)

ToSession = SessionContextRequested | SessionDeletionRequested | SessionTaskControl


class SessionControl:
    """Writes messages to sessions."""

    def __init__(self, bus: Bus, writer: MessageWriter, deletions: Deletions) -> None:
        self._bus = bus
        self._writer = writer
        self._deletions = deletions

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
        answer = await self._answer(
            caller, session, f"context-{new_id()}", requested, lambda event: isinstance(event, ContextSet)
        )
        return answer is not None

    async def change_tasks(self, caller: Caller, session: Session, control: SessionTaskControl) -> None:
        """Request a change of a task or group, and return once the session has the answer, or after 5 s.

        The answer is part of the session's state. Raises SessionDeleting and TryAgain.
        """
        if session.is_deleting:
            raise SessionDeleting
        await self._answer(
            caller,
            session,
            f"task-{control.id}",
            control,
            lambda event: isinstance(event, TaskControlDone | TaskControlRefused) and event.id == control.id,
        )

    async def _answer(
        self,
        caller: Caller,
        session: Session,
        name: str,
        message: SessionContextRequested | SessionTaskControl,
        is_answer: Callable[[SessionEvent], bool],
    ) -> SessionEvent | None:
        """Send a message, and return the event that its handling has written; None if there is none yet.

        Raises TryAgain.
        """
        answers = _Answers(is_answer)
        live = subjects.live_session(caller.tenant, keys.session_key(session.session_id))
        subscription = await self._bus.subscribe(live, answers.on_message)
        try:
            sequence = await self._send(caller, session, name, message)
            async with asyncio.timeout(ANSWER_WAIT_S):
                return await answers.to(f"{subjects.INBOX}:{sequence}")
        except TimeoutError:
            return None
        finally:
            await subscription.stop()

    async def _send(self, caller: Caller, session: Session, name: str, message: ToSession) -> int:
        """Store a message to a session, and return its sequence in INBOX. Raises TryAgain."""
        key = keys.session_key(session.session_id)
        subject = subjects.session_inbox(caller.tenant, key, name)
        data = message.model_dump_json().encode()
        # The id is new each time: a session that was deleted may have begun anew meanwhile.
        return (await self._writer.store(subject, data, f"{key}-{name}-{new_id()}")).sequence


class _Answers:
    """The events of a session that answer a message, by the message whose handling wrote them."""

    def __init__(self, is_answer: Callable[[SessionEvent], bool]) -> None:
        self._is_answer = is_answer
        self._seen: dict[str, SessionEvent] = {}
        self._changed = asyncio.Event()

    async def on_message(self, message: Msg) -> None:
        record = parsed(SessionRecord, checked(message).data) if sequence_of(message) else None
        answer = next(filter(self._is_answer, record.events), None) if record is not None else None
        if record is not None and answer is not None:
            self._seen[record.by] = answer
            self._changed.set()

    async def to(self, message: str) -> SessionEvent:
        """Return the answer to a message, once there is one."""
        while message not in self._seen:
            self._changed.clear()
            await self._changed.wait()
        return self._seen[message]
