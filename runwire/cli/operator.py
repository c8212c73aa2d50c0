"""The operator's connection to NATS, for commands that read and write what services store there.

Its login is the first of these: a credential file (RUNWIRE_NATS_CREDENTIALS, as `runwire credentials operator` writes
it); one that is in RUNWIRE_NATS_URL, NATS_URL or RUNWIRE_NATS_USER; that of the operator in the data folder.
"""

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from nats.errors import Error as NatsError

from contracts import subjects
from contracts.rights import OPERATOR
from runwire.credentials import identities
from runwire.credentials.files import Credential
from runwire.credentials.lookup import Login, find_login
from runwire.credentials.nats_client import DENIED, NatsClient
from runwire.local.data_folder import data_dir, nats_login

_CONNECT_S = 2


class OperatorRefused(Exception):
    """An operator's command cannot reach NATS, or asks for what is not there; the text says what to do."""


@contextlib.asynccontextmanager
async def connected_operator() -> AsyncIterator[NatsClient]:
    """Connect as the operator.

    Raises InvalidCredential, IdentitiesUnreadable, and OperatorRefused for every error of NATS, also of the context.
    """
    login = find_login()
    credential = _credential(login)
    seen: list[Exception] = []

    async def on_error(error: Exception) -> None:
        seen.append(error)

    client = NatsClient()
    client.demands_tls = login.demands_tls
    options: dict[str, Any] = {
        "servers": login.servers,
        "name": "runwire-operator",
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0.1,
        "connect_timeout": _CONNECT_S,
        "error_cb": on_error,
    }
    if credential.user:
        options |= {"user": credential.user, "password": credential.password}
        options["inbox_prefix"] = subjects.replies_to(credential.user).encode()
    if (context := login.ssl_context()) is not None:
        options["tls"] = context
    try:
        await client.connect(**options)
        yield client
    except (NatsError, OSError) as error:
        raise OperatorRefused(_explained(login, credential, [*seen, error])) from error
    finally:
        await client.close()


def _credential(login: Login) -> Credential:
    """The login that is given; without one, that of the operator in the data folder, for the server of that folder."""
    data, given = data_dir(), login.credential()
    of_folder = nats_login(data, login.url)
    is_given = login.file is not None or given.user not in {"", of_folder.get("user")}
    if is_given or not (of_folder or os.environ.get("RUNWIRE_DATA_DIR")):
        return given
    password = identities.read(data).passwords.get(OPERATOR)
    return Credential(login.url, OPERATOR, password) if password else given


def _explained(login: Login, credential: Credential, errors: list[Exception]) -> str:
    said = " ".join(map(str, errors)).lower()
    if "authorization" in said or DENIED in said:
        who = f"the user {credential.user!r}" if credential.user else "a client without a login"
        return (
            f"NATS at {login.address} refuses {who}: set RUNWIRE_NATS_CREDENTIALS to a file that "
            "`runwire credentials operator --out FILE` writes"
        )
    return f"NATS at {login.address} does not answer: {str(errors[0]) or type(errors[0]).__name__}"
