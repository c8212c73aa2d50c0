"""Have nats-server read its accounts again, over its system account. Connections stay, but those of removed users."""

import json
import ssl
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoServersError

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

    client = Client()
    try:
        await client.connect(
            url,
            user=RELOADER,
            password=password,
            inbox_prefix=subjects.replies_to(RELOADER).encode(),
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=_CONNECT_S,
            error_cb=ignore,
            tls=ssl.create_default_context(cafile=ca) if ca else None,
        )
        server = client._server_info["server_id"]  # noqa: SLF001, nats-py hides it
        answer = await client.request(f"$SYS.REQ.SERVER.{server}.RELOAD", timeout=_ANSWER_S)
    except (OSError, NoServersError):
        return False
    except NatsError as error:
        address = urlsplit(url).netloc.rpartition("@")[2]
        raise ServerRefused(f"NATS at {address} refused: {error}. Does it read the accounts of this folder?") from error
    finally:
        await client.close()
        if client._transport is not None:  # noqa: SLF001, `close` forgets it after a refusal
            client._transport.close()  # type: ignore[no-untyped-call]  # noqa: SLF001
    if "error" in (body := json.loads(answer.data)):
        raise ServerRefused(f"NATS did not take the new accounts: {body['error']}")
    return True
