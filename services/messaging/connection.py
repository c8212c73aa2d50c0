"""What a service does with NATS besides pulling and following: publish with an answer, read the last message, ask the API.

Rule 1: nothing is published while disconnected (`pending_size=0`): a cut-off process must not flush stale writes later.
Rule 2: a durable write ends in its sequence, in Refused (the server said no) or in Unsure (may or may not be stored).
Rule 3: errors that only the error callback sees (a denied publish looks like a time-out, a denied subscribe is silent) fail readiness.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson
import structlog
from nats.aio.client import Client, Server
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from services.messaging import message_headers as header_lines
from services.messaging import nats_patches
from services.messaging.direct_get import DirectReader
from services.messaging.errors import GUARD_IN_FLIGHT, Refused, Unavailable, Unsure
from services.messaging.request_reply import RequestReply
from services.messaging.server_clock import ServerClock
from services.messaging.storage import Storage
from services.runtime.settings import BusSettings
from services.runtime.tasks import Tasks, places

logger = structlog.get_logger(__name__)

T = TypeVar("T")

_RECONNECT_S = 0.1
_RECONNECT_MAX_S = 2.0
_RETRY_S = 0.1
_MAX_CATCH_UPS = 4


class Bus:
    """One service's connection. Built before it is connected; `attach` gives it the client."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        self.name = name
        self.settings = settings
        self.on_reconnect: list[Callable[[], Awaitable[None]]] = []
        self.up_since = time.monotonic()
        """When this connection was last made: silence of others proves nothing shortly after."""
        self.denied: str | None = None
        """The last permission error. Set once, it fails readiness until the service is restarted with other rights."""
        self.catch_ups = asyncio.Semaphore(_MAX_CATCH_UPS)
        """Followers that read back what is stored at one time: what all others ask for waits behind it on this connection."""
        self.storage = Storage(self)
        self.clock = ServerClock(self)
        self.tasks = Tasks()
        """What runs in the background of this service: whoever has the connection keeps it here, so that `/readyz` names what has died."""
        self._shared: dict[type, Any] = {}
        self._nc: Client | None = None
        self._refusal_logged = False
        self._leaving: asyncio.Task[None] | None = None
        self._readers: dict[str, DirectReader] = {}
        self._requests: RequestReply | None = None

    def shared(self, kind: type[T], make: Callable[[], T]) -> T:
        """The one object of a kind that all of this service shares; `make` makes it when it is first asked for."""
        if kind not in self._shared:
            self._shared[kind] = make()
        found: T = self._shared[kind]
        return found

    def client_options(self) -> dict[str, Any]:
        """Keyword arguments of `nats.connect` (and of FastStream's broker) that keep the rules above."""
        return {
            "servers": self.settings.nats_url.split(","),
            "name": self.name,
            "pending_size": 0,
            "max_reconnect_attempts": -1,
            "ping_interval": 5,
            "max_outstanding_pings": 2,
            "connect_timeout": 2,
            "inbox_prefix": b"_INBOX_" + self.name.encode(),
            "reconnect_to_server_handler": _any_server_with_jitter,
            "reconnected_cb": self._reconnected,
            "error_cb": self._failed,
            **self.login(),
        }

    def login(self) -> dict[str, str]:
        """User and password of `nats.connect`, where the settings name any."""
        user, password = self.settings.nats_user, self.settings.nats_password
        return {"user": user, "password": password.get_secret_value() if password else ""} if user else {}

    def attach(self, client: Client) -> "Bus":
        """Use this connection from now on."""
        header_lines.use_fast_parser(client)
        nats_patches.send_large_uncopied(client)
        self._nc = client
        self.up_since = time.monotonic()
        return self

    @property
    def nc(self) -> Client:
        """The connection, once there is one."""
        if self._nc is None:
            raise Unavailable("not connected yet")
        return self._nc

    @property
    def is_connected(self) -> bool:
        """Whether the server is there right now."""
        return self._nc is not None and self._nc.is_connected

    async def leave(self) -> None:
        """Close the connection at once, also while it is being made again."""
        if self._nc is not None:
            self._leaving = asyncio.create_task(self._nc.close())
            await asyncio.wait({self._leaving})  # nats-py may end it cancelled, by a future that it shares with its reconnecting

    async def _reconnected(self) -> None:
        self.up_since = time.monotonic()
        self._refusal_logged = False
        self.clock.forget()
        logger.info("nats_reconnected")
        for renew in list(self.on_reconnect):
            try:
                await renew()
            except Exception as error:  # noqa: BLE001, the others must be renewed too, and nats-py would stop reconnecting
                logger.error("renewal_failed", error=type(error).__name__, places=places(error))  # noqa: TRY400, its text may show data

    async def _failed(self, error: Exception) -> None:
        if self._leaving not in (None, asyncio.current_task()):
            # nats-py cancels its reconnecting once, and `wait_for` of Python 3.11 may swallow that: it would go on for ever.
            raise asyncio.CancelledError
        text = str(error)
        if "permissions violation" in text.lower():
            self.denied = text
            logger.error("nats_permission_denied", error=text)
        elif isinstance(error, SlowConsumerError):
            # Messages were dropped: the gap detection of readers and the redelivery of consumers bring them back.
            logger.warning("nats_slow_consumer", subject=error.subject)
        elif "authorization violation" in text.lower():
            # Tried again for ever all the same: the server may be given the user later.
            if not self._refusal_logged:
                logger.warning("nats_login_refused", user=self.settings.nats_user)
            self._refusal_logged = True
        else:
            logger.debug("nats_client_error", error=repr(error))

    async def request(self, subject: str, data: bytes = b"", wait_s: float = 2.0, headers: dict[str, str] | None = None) -> Msg:
        """Return the first answer to a message. Raises NatsError, TimeoutError, ConnectionError, OSError or Unavailable when none comes."""
        requests = self._requests
        if requests is None:
            requests = self._requests = await RequestReply(self.nc).start()
        return await requests.request(subject, data, wait_s, headers)

    async def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None, wait_s: float = 2.0) -> int:
        """Write one message to the stream that listens on `subject` and return its sequence.

        Raises Refused when the server said no, Unsure when no answer came, no stream answered, or another guarded write was in flight.
        """
        try:
            answer = await self.request(subject, data, wait_s, headers)
        except (NatsError, TimeoutError, ConnectionError, OSError, Unavailable) as error:
            self.storage.on_silence(subject)
            raise Unsure(repr(error)) from error
        body = orjson.loads(answer.data)
        if (error_body := body.get("error")) is not None:
            if error_body.get("err_code") == GUARD_IN_FLIGHT:
                raise Unsure(error_body.get("description", ""))
            refusal = Refused(error_body.get("err_code", 0), error_body.get("description", ""))
            self.storage.on_refusal(subject, refusal)
            raise refusal
        self.storage.on_stored(subject)
        return int(body["seq"])

    async def publish_surely(self, subject: str, data: bytes, message_id: str, headers: dict[str, str] | None = None) -> int:
        """Write under one message id until the stream has it. For writes that are not fenced. Raises Refused."""
        while True:
            try:
                return await self.publish(subject, data, {**(headers or {}), "Nats-Msg-Id": message_id})
            except Unsure:
                await asyncio.sleep(_RETRY_S)

    async def last(self, stream: str, subject: str, attempts: int | None = None) -> Msg | None:
        """Return the newest message of an exact subject, or None. Repeats until answered, or raises Unavailable after `attempts`."""
        tried = 0
        while True:
            try:
                found = await self.request(f"$JS.API.DIRECT.GET.{stream}.{subject}")
            except (NatsError, TimeoutError, ConnectionError, OSError) as error:
                tried += 1
                if attempts is not None and tried >= attempts:
                    raise Unavailable("NATS did not answer") from error
                await asyncio.sleep(_RETRY_S)
                continue
            status = found.headers.get("Status") if found.headers else None
            return None if status == "404" else found

    async def api(self, subject: str, body: dict[str, Any], wait_s: float = 5.0) -> dict[str, Any]:
        """Ask JetStream's API. Raises Refused, or Unavailable when nobody answers."""
        try:
            answer = await self.request(f"$JS.API.{subject}", orjson.dumps(body), wait_s)
        except (NatsError, TimeoutError, ConnectionError, OSError) as error:
            raise Unavailable(f"JetStream did not answer {subject}: {error!r}") from error
        reply: dict[str, Any] = orjson.loads(answer.data)
        if (error_body := reply.get("error")) is not None:
            raise Refused(error_body.get("err_code", 0), error_body.get("description", ""))
        return reply

    async def tell(self, subject: str, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        """Fire and forget. For what may be lost: acknowledgements (a redelivery must be harmless anyway), heartbeats, hints."""
        try:
            await self.nc.publish(subject, data, headers=headers)
        except (NatsError, ConnectionError, OSError) as error:
            logger.debug("message_not_sent", subject=subject, error=repr(error))

    async def barrier(self) -> None:
        """Return once the server has taken in everything sent before, subscriptions included; `flush` does not promise that."""
        await self.last("RUNS", "barrier")

    async def reader(self, stream: str) -> DirectReader:
        """The batched direct reader of a stream; one per stream and connection."""
        if stream not in self._readers:
            self._readers[stream] = await DirectReader(self.nc, stream).start()
        return self._readers[stream]


def _any_server_with_jitter(servers: list[Server], _info: dict[str, Any]) -> tuple[Server | None, float]:
    """Choose where and after how many seconds to reconnect: a server that comes back must not meet all its clients at once."""
    server = min(servers, key=lambda s: (s.reconnects, random.random()))  # noqa: S311, a spread, not a secret
    ceiling = min(_RECONNECT_MAX_S, _RECONNECT_S * 2 ** min(server.reconnects, 6))
    return server, random.uniform(_RECONNECT_S / 2, ceiling)  # noqa: S311
