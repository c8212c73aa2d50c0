"""The client of nats-py, for programs that demand TLS or wait for a credential, and its use for one command."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

from contracts.wire import subjects
from runwire.credentials.files import Credential
from runwire.credentials.lookup import Login

_CONNECT_S = 2

DENIED = "permissions violation"
"""In lower case, in each error of NATS about a subject."""


class TlsNotOffered(NatsError):
    """The server offers no TLS although it is demanded."""

    def __str__(self) -> str:
        return "the server offers no TLS, which is demanded (tls://, or a certificate authority); nothing was sent"


class NatsClient(Client):
    """The client of nats-py, changed in three ways.

    It does not do without TLS where it is demanded; nats-py does if the server offers none, even for `tls://`. It
    reconnects after any error of the server; nats-py closes for good, for example when a credential is revoked. It
    closes the socket of an attempt that failed; nats-py waits for ever for the end of one whose TLS handshake failed.
    """

    demands_tls = False

    # The name and the form of the argument are those of nats-py.
    async def _process_info(
        self,
        info: dict[str, Any],
        initial_connection: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        if initial_connection and self.demands_tls:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise TlsNotOffered
            info["tls_required"] = True  # nats-py begins TLS when it reads this
        await super()._process_info(info, initial_connection)

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException:
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # nats-py does not annotate it
            self._transport = None  # nats-py waits for the end of what is here
            raise

    async def _process_err(self, err_msg: str) -> None:
        if DENIED in err_msg:
            await super()._process_err(err_msg)
        else:
            error = NatsError(f"nats: {err_msg}")
            await self._error_cb(error)
            await self._process_op_err(error)


@contextlib.asynccontextmanager
async def connected_once(
    login: Login, credential: Credential, on_error: Callable[[Exception], Awaitable[None]]
) -> AsyncIterator[NatsClient]:
    """Connect for one command: with one attempt, without a reconnect.

    `credential`: user and password; the server is that of `login`. `on_error`: receives what the server reports.
    Raises NatsError, OSError, InvalidCredential.
    """
    client = NatsClient()
    client.demands_tls = login.demands_tls
    options: dict[str, Any] = {
        "servers": login.servers,
        "name": "runwire-command",
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": _CONNECT_S,
        "error_cb": on_error,
        "tls": login.ssl_context(),
    }
    if credential.user:
        options |= {"user": credential.user, "password": credential.password}
        options["inbox_prefix"] = subjects.replies_to(credential.user).encode()
    try:
        await client.connect(**options)
        yield client
    finally:
        await client.close()
