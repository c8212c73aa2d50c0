"""The operator's connection to NATS, for commands that read and write what services store there.

And the command that has nats-server read its accounts again. Connections stay, but those of removed users.

Its login is the first of these: a credential file (RUNWIRE_NATS_CREDENTIALS, as `runwire credentials operator` writes
it); one that is in RUNWIRE_NATS_URL, NATS_URL or RUNWIRE_NATS_USER; that of the operator in the data folder.
"""

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator
from typing import Any

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoServersError
from nats.errors import TimeoutError as NatsTimeoutError

from contracts.wire import subjects
from contracts.wire.rights import OPERATOR, RELOADER, TOOLS_OPERATOR
from runwire import identities
from runwire.credentials import Credential, Login, find_login
from runwire.errors import ServerRefused
from runwire.local.data_folder import data_dir, nats_login
from runwire.nats_client import DENIED, NatsClient

_LISTEN_S, _SILENCE_S = 2.0, 0.5
_MAX_REPLIES = 2000
_CONNECT_S, _ANSWER_S = 2, 5


class OperatorRefused(Exception):
    """An operator's command cannot reach NATS, or asks for what is not there; the text says what to do."""


@contextlib.asynccontextmanager
async def connected_operator() -> AsyncIterator[NatsClient]:
    """Connect as the operator of the services.

    Raises InvalidCredential, IdentitiesUnreadable, and OperatorRefused for every error of NATS, also of the context.
    """
    login = find_login()
    given = login.credential()
    is_given = login.file is not None or given.user not in {"", nats_login(data_dir(), login.url).get("user")}
    async with _connected(login, given if is_given else _of_data_folder(OPERATOR, login) or given) as client:
        yield client


@contextlib.asynccontextmanager
async def connected_tools_operator() -> AsyncIterator[NatsClient | None]:
    """Connect as the operator among the tools; None where the data folder has no such user. Raises as above."""
    login = find_login()
    credential = _of_data_folder(TOOLS_OPERATOR, login)
    if credential is None:
        yield None
        return
    async with _connected(login, credential) as client:
        yield client


def _of_data_folder(user: str, login: Login) -> Credential | None:
    """The login of a user in the data folder, for the server that runs from it.

    It is sent to no other server, unless the environment names both folder and server, as in a container.
    """
    data = data_dir()
    are_named = os.environ.get("RUNWIRE_DATA_DIR") and os.environ.get("RUNWIRE_NATS_URL")
    if not (nats_login(data, login.url) or are_named):
        return None
    password = identities.read(data).passwords.get(user)
    return Credential(login.url, user, password) if password else None


async def replies(client: NatsClient, subject: str, inbox: str) -> AsyncIterator[Msg]:
    """Ask all who listen on a subject; yield what they say until all are silent, for two seconds at most."""
    received = await client.subscribe(inbox, max_msgs=_MAX_REPLIES)
    await client.publish(subject, reply=inbox)
    end = asyncio.get_running_loop().time() + _LISTEN_S
    with contextlib.suppress(NatsTimeoutError):
        for _ in range(_MAX_REPLIES):
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return
            yield await received.next_msg(min(left, _SILENCE_S))


@contextlib.asynccontextmanager
async def _connected(login: Login, credential: Credential) -> AsyncIterator[NatsClient]:
    seen: list[Exception] = []
    try:
        async with _connected_once(login, credential, seen) as client:
            yield client
    except (NatsError, OSError) as error:
        seen.append(error)
        said = " ".join(map(str, seen)).lower()
        if "authorization" in said or DENIED in said:
            who = f"the user {credential.user!r}" if credential.user else "a client without a login"
            remedy = "set RUNWIRE_NATS_CREDENTIALS to a file that `runwire credentials operator --out FILE` writes"
            raise OperatorRefused(f"NATS at {login.address} refuses {who}: {remedy}") from error
        first = str(seen[0]) or type(seen[0]).__name__
        raise OperatorRefused(f"NATS at {login.address} does not answer: {first}") from error


@contextlib.asynccontextmanager
async def _connected_once(login: Login, credential: Credential, seen: list[Exception]) -> AsyncIterator[NatsClient]:
    """Connect with one attempt, without a reconnect; `seen` gets what the server reports. Raises NatsError, OSError."""

    async def on_error(error: Exception) -> None:
        seen.append(error)

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


async def reload_accounts(url: str, password: str, ca: str | None = None) -> bool:
    """Return True once the server at `url` works with the new accounts, False where no server answers.

    `password`: of the user `reloader`. `ca`: path of the server's certificate authority, which demands TLS as `tls://`
    does. Raises ServerRefused, also for a server that cannot be trusted, and InvalidCredential.
    """
    reloader = Credential(url, RELOADER, password, ca)
    login = Login(url, lambda: reloader, ca)
    try:
        async with _connected_once(login, reloader, []) as client:
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
