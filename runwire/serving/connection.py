"""The connection of a process that serves tools to NATS.

Rule 1: it is tried until there is one, with the login as it is by then: a credential may be added, or replaced, while
the process waits.
Rule 2: each reason for which there is no connection is logged once, with what to do about it. No text holds a secret.
Rule 3: where TLS is demanded, nothing is sent without it.
Rule 4: nothing is sent late: after a disconnect the caller sends a status request for its call.
"""

import asyncio
import contextlib
import logging
import re
import ssl
from collections.abc import Callable, Iterable
from typing import Any

from nats.errors import Error as NatsError

from contracts.wire import subjects
from runwire.credentials import Login
from runwire.errors import ToolsNotAllowed
from runwire.nats_client import DENIED, NatsClient, TlsNotOffered

logger = logging.getLogger("runwire.serving")

_REFUSED_LOGIN = "authorization violation"
_DENIED_SUBJECT = re.compile(r'"([^"]*)"')
_BURST_S = 0.1
"""NATS reports each denied subject on its own; they come together."""


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
            "disconnected_cb": self._on_disconnected,
            "reconnected_cb": self._on_reconnected,
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

    async def _on_disconnected(self) -> None:
        self.denied_tools.clear()
        self._on_disconnect()

    async def _on_reconnected(self) -> None:
        self._logged.clear()
        logger.info("connected to NATS again")


def _not_allowed(user: str, tools: Iterable[str]) -> str:
    names = " ".join(sorted(tools))
    remedy = f"`runwire credentials tool {names}` gives one that does"
    return f"the credential of the NATS user {user} does not allow the tool {names}: {remedy}"
