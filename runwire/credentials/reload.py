"""Have nats-server read its accounts again, over its system account. Connections stay, but those of removed users."""

import json
import ssl
from urllib.parse import urlsplit

import nats
from nats.errors import Error as NatsError

from contracts import subjects
from contracts.rights import RELOADER
from runwire.errors import ServerRefused

_CONNECT_S, _ANSWER_S = 2, 5


async def reload_accounts(url: str, password: str, ca: str | None = None) -> bool:
    """Return True once the server at `url` works with the new accounts, False where no server answers.

    `password`: of the user `reloader`. Raises ServerRefused.
    """

    async def ignore(_error: Exception) -> None:
        """What fails is raised too."""

    try:
        client = await nats.connect(
            url,
            user=RELOADER,
            password=password,
            inbox_prefix=subjects.replies_to(RELOADER).encode(),
            allow_reconnect=False,
            connect_timeout=_CONNECT_S,
            error_cb=ignore,
            tls=ssl.create_default_context(cafile=ca) if ca else None,
        )
    except OSError:
        return False
    except NatsError as error:
        address = urlsplit(url).netloc.rpartition("@")[2]
        raise ServerRefused(
            f"NATS at {address} refused the user {RELOADER}: {error}. Does it read the accounts of this folder?"
        ) from error
    try:
        server = client._server_info["server_id"]  # noqa: SLF001, nats-py hides it
        answer = await client.request(f"$SYS.REQ.SERVER.{server}.RELOAD", timeout=_ANSWER_S)
    except NatsError as error:
        raise ServerRefused(f"NATS did not answer the request to read its accounts again: {error}") from error
    finally:
        await client.close()
    if "error" in (body := json.loads(answer.data)):
        raise ServerRefused(f"NATS did not take the new accounts: {body['error']}")
    return True
