"""A connection to NATS for one command."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from contracts.wire import subjects
from runwire.credentials.files import Credential
from runwire.credentials.lookup import Login
from runwire.nats_client import NatsClient

_CONNECT_S = 2


@contextlib.asynccontextmanager
async def connected_once(
    login: Login, credential: Credential, on_error: Callable[[Exception], Awaitable[None]]
) -> AsyncIterator[NatsClient]:
    """Connect for one command: with one attempt, without a reconnect.

    `credential`: user and password; the server is that of `login`. `on_error`: receives what the server reports.
    Raises NatsError, OSError, InvalidCredential.
    """
    client = NatsClient(demands_tls=login.demands_tls)
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
