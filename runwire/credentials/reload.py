"""Have nats-server read its accounts again, over its system account. Connections stay, but those of removed users."""

import json
import ssl

from nats.errors import Error as NatsError
from nats.errors import NoServersError

from contracts.wire.rights import RELOADER
from runwire.credentials.command_connection import connected_once
from runwire.credentials.files import Credential
from runwire.credentials.lookup import Login
from runwire.errors import ServerRefused

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
