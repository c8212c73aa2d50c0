"""A connection to NATS for one command, and the command that has nats-server read its accounts again.

Connections stay, but those of removed users.
"""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from nats.errors import Error as NatsError
from nats.errors import NoServersError

from contracts.wire import subjects
from contracts.wire.rights import RELOADER
from runwire.credentials.lookup import Credential, Login
from runwire.errors import ServerRefused
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


_ANSWER_S = 5


async def reload_accounts(url: str, password: str, ca: str | None = None) -> bool:
    """Return True once the server at `url` works with the new accounts, False where no server answers.

    `password`: of the user `reloader`. `ca`: path of the server's certificate authority, which demands TLS as `tls://`
    does. Raises ServerRefused, also for a server that cannot be trusted, and InvalidCredential.
    """

    async def ignore(_error: Exception) -> None:
        """What fails is raised too."""

    reloader = Credential(url, RELOADER, password, ca)
    login = Login(url, lambda: reloader, ca)
    try:
        async with connected_once(login, reloader, ignore) as client:
            server = client._server_info["server_id"]  # noqa: SLF001, nats-py hides it
            answer = await client.request(f"$SYS.REQ.SERVER.{server}.RELOAD", timeout=_ANSWER_S)
    except NoServersError:
        return False
    except ssl.SSLError as error:
        raise ServerRefused(f"the certificate of NATS at {login.address} is not trusted: {error}") from error
    except NatsError as error:
        raise ServerRefused(
            f"NATS at {login.address} refused: {error}. Does it read the accounts of this folder?"
        ) from error
    except OSError:
        return False
    if "error" in (body := json.loads(answer.data)):
        raise ServerRefused(f"NATS did not take the new accounts: {body['error']}")
    return True
