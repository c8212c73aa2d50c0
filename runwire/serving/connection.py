"""The connection to NATS of a process that serves tools, and how old what comes over it may be.

Rule 1: it is tried until there is one, with the login as it is by then: a credential may be added, or replaced, while
the process waits.
Rule 2: each reason for which there is no connection is logged once, with what to do about it. No text holds a secret.
Rule 3: where TLS is demanded, nothing is sent without it.
Rule 4: nothing is sent late: after a disconnect the caller sends a status request for its call.
Rule 5: `StallDetector` notices that this process was stopped; `CallerClock` is the clock of their callers' deadlines.
"""

import asyncio
import contextlib
import logging
import re
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from nats.errors import Error as NatsError

from contracts.tools.messages import ToolCall
from contracts.wire import subjects
from runwire.credentials import Login
from runwire.errors import ToolsNotAllowed
from runwire.nats_client import DENIED, NatsClient, TlsNotOffered

logger = logging.getLogger("runwire.serving")

_REFUSED_LOGIN = "authorization violation"
_DENIED_SUBJECT = re.compile(r'"([^"]*)"')
_BURST_S = 0.1
"""NATS reports each denied subject on its own; they come together."""
STALL_S = 1.0
"""A longer gap between two ticks, which come every half second, means that the process was stopped. It is shorter than
every caller's silence timeout."""
_READ_BACKLOG_S = 0.2
"""Enough to read what waits in the socket."""
_AFTER_STALL_S = 1.0
"""Seconds after a stall in which a request may be an old one from the socket."""
_REMEMBERED = 1000


class Connection:
    """The connection, and which of the tools NATS has denied to its user."""

    def __init__(self, login: Login, tools: Iterable[str], on_disconnect: Callable[[], None]) -> None:
        self.client = NatsClient(demands_tls=login.demands_tls)
        self.denied_tools: set[str] = set()
        self._tools = set(tools)
        self._login = login
        self._on_disconnect = on_disconnect
        self._closing: asyncio.Task[None] | None = None
        self._logged: set[str] = set()
        self._denied_subjects: list[str] = []
        self._denied = asyncio.Event()

    @property
    def works(self) -> bool:
        """Whether the server is connected and denies no tool."""
        return self.client.is_connected and not self.denied_tools

    async def open(self) -> None:
        """Connect, however long it takes. Raises InvalidCredential."""

        async def on_disconnected() -> None:
            self.denied_tools.clear()
            self._on_disconnect()

        async def on_reconnected() -> None:
            self._logged.clear()
            logger.info("connected to NATS again")

        options: dict[str, Any] = {
            "servers": self._login.servers,
            "name": "runwire-tools",
            "pending_size": 0,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.25,
            "ping_interval": 5,
            "connect_timeout": 2,
            "tls": self._login.ssl_context(),
            "user": lambda: self._login.credential().user,
            "password": lambda: self._login.credential().password,
            "error_cb": self._on_error,
            "disconnected_cb": on_disconnected,
            "reconnected_cb": on_reconnected,
        }
        await self.client.connect(**options)

    async def settle(self) -> None:
        """Return once the server has taken or denied all subscriptions so far."""
        with contextlib.suppress(NatsError, OSError):
            for _ in range(2):  # nats-py sends the first PING ahead of what it has buffered.
                await self.client.flush()
        self._sort_denials()

    async def watch_permissions(self) -> None:
        """Log what NATS denies. Raises ToolsNotAllowed once it allows no tool at all."""
        while True:
            if self._tools and self._tools == self.denied_tools:
                raise ToolsNotAllowed(_not_allowed(self._user(), self.denied_tools))
            await self._denied.wait()
            await asyncio.sleep(_BURST_S)
            self._denied.clear()
            self._sort_denials()

    async def close(self) -> None:
        """Close the connection, whatever its state.

        nats-py cancels its reconnecting task once, and `wait_for` of Python 3.11 may swallow that: then the task's next
        connection error ends it.
        """
        self._closing = asyncio.create_task(self.client.close())
        await asyncio.wait({self._closing})
        if not self._closing.cancelled() and (error := self._closing.exception()):
            logger.debug("closing: %r", error)  # nats-py may write to a socket that is closed.

    async def _on_error(self, error: Exception) -> None:
        if self._closing not in (None, asyncio.current_task()):
            raise asyncio.CancelledError
        text = str(error).lower()
        if DENIED in text:
            self._denied_subjects += _DENIED_SUBJECT.findall(text)[:1]
            self._denied.set()
        elif _REFUSED_LOGIN in text:
            self._log_once(self._refused_login())
        else:
            self._log_once(f"NATS at {self._login.address}: {self._explained(error)}")

    def _log_once(self, text: str) -> None:
        # While the server is unavailable the same error comes with every attempt.
        if text not in self._logged:
            self._logged.add(text)
            logger.warning("%s", text)

    def _sort_denials(self) -> None:
        denied, self._denied_subjects = self._denied_subjects, []
        by_subject = {subjects.tool(name).lower(): name for name in self._tools}
        tools = {by_subject[subject] for subject in denied if subject in by_subject} - self.denied_tools
        self.denied_tools |= tools
        if tools and self.denied_tools != self._tools:
            logger.error("%s", _not_allowed(self._user(), tools))
        for subject in denied:
            if not any(f".{name.lower()}" in subject for name in self.denied_tools):
                shown = subjects.siblings(subject)  # The last part of a reply subject is of one call.
                self._log_once(f"the credential of the NATS user {self._user()} does not allow {shown}")

    def _user(self) -> str:
        return repr(self._login.credential().user)

    def _refused_login(self) -> str:
        user, file = self._login.credential().user, self._login.file
        if file is not None:
            remedy = (
                f"the credential in {file} was revoked, or is of another platform. "
                f"`runwire credentials tool NAME --out {file}` writes one that is valid; it is used at once"
            )
        else:
            remedy = (
                "set RUNWIRE_NATS_CREDENTIALS to a credential file, or RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD, "
                "or RUNWIRE_DATA_DIR to the data folder of its `runwire up`"
            )
        who = f"the user {user!r}" if user else "a client without a login"
        return f"NATS at {self._login.address} refuses {who} (Authorization Violation): {remedy}"

    def _explained(self, error: Exception) -> str:
        if isinstance(error, TlsNotOffered):
            return str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = "" if self._login.ca else "; set RUNWIRE_NATS_CA to the PEM file of its certificate authority"
            return f"its certificate is not accepted: {error.verify_message}{remedy}"
        hint = "; it is tried again until it answers" if isinstance(error, OSError) else ""
        return f"{error!r}{hint}"


def _not_allowed(user: str, tools: Iterable[str]) -> str:
    names = " ".join(sorted(tools))
    remedy = f"`runwire credentials tool {names}` gives one that does"
    return f"the credential of the NATS user {user} does not allow the tool {names}: {remedy}"


class StallDetector:
    """Notices that this process was stopped for a while (SIGSTOP, a frozen machine); it ticks while the process runs.

    What the process then reads from its socket may be old, and may have been cancelled since.

    Rule 1: no clock of another machine is compared. A cancel comes after its request in the same socket, so everything
    that waits there is read before a request is started.
    Rule 2: without a stall this costs one comparison per request.
    """

    def __init__(self) -> None:
        self._last_tick_at = time.monotonic()
        self._resumed_at = float("-inf")

    def tick(self) -> None:
        """Record that the process runs. A long gap before it was a stall."""
        now = time.monotonic()
        if now - self._last_tick_at > STALL_S:
            self._resumed_at = now
        self._last_tick_at = now

    @property
    def just_resumed(self) -> bool:
        """Whether what is read now may have waited in the socket during a stall."""
        self.tick()
        return self._last_tick_at - self._resumed_at < _AFTER_STALL_S

    async def read_backlog(self) -> None:
        """Return once what waited in the socket has been read."""
        await asyncio.sleep(max(0.0, self._resumed_at + _READ_BACKLOG_S - time.monotonic()))


class CallerClock:
    """The clock by which callers set deadlines, for all tools of this process, as far as their requests tell.

    Without a reason to doubt it is that of this machine, which may be wrong.

    Rule 1: a request comes from the past. If one seems to come from the future, this clock is behind.
    Rule 2: a request that seems to come late is declined: it may be old, since it waits in the socket while this
    process is stopped, or is written by a caller that was stopped. The caller repeats it only after it has read the
    decline. So the repetition is new, and the time by which it still seems late is how far this clock is ahead.
    """

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._declined: OrderedDict[tuple[str, int], None] = OrderedDict()

    def ms_until(self, deadline_at: int) -> int:
        """Return the time until a deadline of a caller."""
        return self.local(deadline_at) - _own_ms()

    def local(self, deadline_at: int) -> int:
        """Return a caller's time as this machine's clock shows it then."""
        return deadline_at + self._ahead_ms

    def may_begin(self, call: ToolCall) -> bool:
        """Whether a call may begin now, as far as its request says."""
        return self.ms_until(min(call.deadline_at, call.start_by or call.deadline_at)) >= 0

    def is_late(self, call: ToolCall) -> bool:
        """Whether a request comes too late to be started. If so, it is expected to be declined."""
        key = (call.idempotency_key, call.round)
        if call.sent_at is not None:
            seems_ahead_ms = _own_ms() - call.sent_at
            was_declined = self._declined.pop(key, 0) is None
            self._ahead_ms = seems_ahead_ms if was_declined else min(self._ahead_ms, seems_ahead_ms)
        if self.may_begin(call):
            return False
        if call.understands_declined:
            self._declined[key] = None
            if len(self._declined) > _REMEMBERED:
                self._declined.popitem(last=False)
        return True


def _own_ms() -> int:
    return time.time_ns() // 1_000_000
