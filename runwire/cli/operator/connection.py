"""The operator's connection to NATS, for commands that read and write what services store there.

Its login is the first of these: a credential file (RUNWIRE_NATS_CREDENTIALS, as `runwire credentials operator` writes
it); one that is in RUNWIRE_NATS_URL, NATS_URL or RUNWIRE_NATS_USER; that of the operator in the data folder.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from contracts.wire.rights import OPERATOR, TOOLS_OPERATOR
from runwire.credentials import identities
from runwire.credentials.command_connection import connected_once
from runwire.credentials.lookup import Credential, Login, find_login
from runwire.local.data_folder import data_dir, nats_login
from runwire.nats_client import DENIED, NatsClient

_LISTEN_S, _SILENCE_S = 2.0, 0.5
_MAX_REPLIES = 2000


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

    async def on_error(error: Exception) -> None:
        seen.append(error)

    try:
        async with connected_once(login, credential, on_error) as client:
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
