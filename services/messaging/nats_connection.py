"""The connection of a service to NATS: its client and life, requests, subscriptions, and the JetStream API.

Rule 1: nothing is published while disconnected (`pending_size=0`): a process that was cut off must not send stale
writes later.
Rule 2: errors that only reach the error callback fail readiness: a denied publish looks like a time-out, a denied
subscribe like silence.
"""

import asyncio
import itertools
import random
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self, TypeVar

import orjson
import structlog
from nats.aio.client import Client, Server
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import SlowConsumerError
from pydantic import BaseModel

from contracts.wire import subjects
from runwire.nats_client import DENIED, NatsClient, TlsNotOffered
from services.messaging import nats_patches
from services.messaging.errors import NATS_ERRORS, NO_LEADER, NoResponders, Refused, Unavailable, Unsure, translated
from services.messaging.nats_patches import Headers, Interim, RequestReply
from services.runtime.settings import BusSettings
from services.runtime.tasks import Tasks, code_locations, is_set_within

logger = structlog.get_logger(__name__)

T = TypeVar("T")

_RECONNECT_S = 0.1
_RECONNECT_MAX_S = 0.5
_FIRST_RETRY_S, _MAX_RETRY_S = 0.1, 1.0


Body = bytes | BaseModel
"""What a message holds; a model is sent as its JSON."""


def encoded(body: Body) -> bytes:
    """Return the bytes of a message."""
    return body if isinstance(body, bytes) else body.model_dump_json().encode()


class NatsConnection:
    """The connection of one service. It is created before it is connected; `attach` gives it the client."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        self.name = name
        self.settings = settings
        self.on_reconnect: list[Callable[[], Awaitable[None] | None]] = []
        self.on_disconnect: list[Callable[[], None]] = []
        """End waits for replies: they never arrive once their connection is lost."""
        self.up_since = time.monotonic()
        """When the connection was last made. Shortly after, other clients may still be reconnecting: their silence
        proves nothing."""
        self.denied: str | None = None
        """The last permission error. It fails readiness until the service is restarted with other permissions."""
        self.answered: list[str] = []
        """Subjects of the requests that this service answers, for its announcement."""
        self.tasks = Tasks()
        """Background tasks of this service, kept here so that `/readyz` names one that has failed."""
        self._nc: Client | None = None
        self._next_connection = asyncio.Event()
        self.refused: str | None = None
        """Why the last attempt to connect failed, where the server or TLS said so."""
        self._leaving: asyncio.Task[None] | None = None
        self._requests: RequestReply | None = None

    def client_options(self) -> dict[str, Any]:
        """Return keyword arguments of `nats.connect` that enforce the rules above."""
        options: dict[str, Any] = {
            "servers": self.settings.nats_url.split(","),
            "name": self.name,
            "pending_size": 0,
            "max_reconnect_attempts": -1,
            "ping_interval": 5,
            "max_outstanding_pings": 2,
            "connect_timeout": 2,
            "inbox_prefix": subjects.replies_to(self.name).encode(),
            "reconnect_to_server_handler": _any_server_with_jitter,
            "disconnected_cb": self._disconnected,
            "reconnected_cb": self._reconnected,
            "error_cb": self._failed,
        }
        settings = self.settings
        if settings.nats_user and settings.nats_password:
            options |= {"user": settings.nats_user, "password": settings.nats_password.get_secret_value()}
        if settings.nats_ca:
            options["tls"] = ssl.create_default_context(cafile=settings.nats_ca)
        return options

    async def connect(self) -> Self:
        """Wait for the server without a time limit, and use this connection from now on."""
        client = NatsClient(demands_tls=self.settings.demands_tls)
        await client.connect(**self.client_options())
        return self.attach(client)

    def attach(self, client: Client) -> Self:
        """Use this client from now on."""
        nats_patches.use_fast_parser(client)
        nats_patches.use_fast_sender(client)
        self._nc = client
        self._on_connection()
        return self

    @property
    def nc(self) -> Client:
        """The client. Raises Unavailable before there is one."""
        if self._nc is None:
            raise Unavailable("not connected yet")
        return self._nc

    @property
    def is_connected(self) -> bool:
        """Whether the server is reachable right now."""
        return self._nc is not None and self._nc.is_connected

    @property
    def received(self) -> int:
        """How many messages have arrived."""
        return self._nc.stats["in_msgs"] if self._nc is not None else 0

    async def leave(self) -> None:
        """Close the connection at once, even during a reconnect."""
        if self._nc is not None:
            self._leaving = asyncio.create_task(self._nc.close())
            await asyncio.wait({self._leaving})  # nats-py may cancel it, by a future shared with its reconnect task

    def _on_connection(self) -> None:
        self.refused = None
        self.up_since = time.monotonic()
        waiting, self._next_connection = self._next_connection, asyncio.Event()
        waiting.set()

    async def _disconnected(self) -> None:
        for end_waits in self.on_disconnect:
            end_waits()

    async def _reconnected(self) -> None:
        self._on_connection()
        logger.info("nats_reconnected")
        for renew in list(self.on_reconnect):
            try:
                if (renewing := renew()) is not None:
                    await renewing
            # The other callbacks must run, and nats-py would stop reconnecting.
            except Exception as error:  # noqa: BLE001
                # No traceback: it may show data.
                logger.error("renewal_failed", error=type(error).__name__, places=code_locations(error))  # noqa: TRY400

    async def _failed(self, error: Exception) -> None:
        if self._leaving not in (None, asyncio.current_task()):
            # nats-py cancels its reconnecting once, and `wait_for` of Python 3.11 may swallow that: it would go on for
            # ever.
            raise asyncio.CancelledError
        text = str(error)
        if DENIED in text.lower():
            self.denied = text
            logger.error("nats_permission_denied", error=text)
        elif isinstance(error, SlowConsumerError):
            # Messages were dropped: the gap detection of readers and the redelivery of consumers bring them back.
            logger.warning("nats_slow_consumer", subject=error.subject)
        elif "authorization violation" in text.lower():
            # Connecting is retried without end: the user may be added to the server later.
            if self.refused is None:
                logger.warning("nats_login_refused", user=self.settings.nats_user)
            self.refused = f"the login of the user {self.settings.nats_user or '(none)'} is refused"
        elif isinstance(error, ssl.SSLError | TlsNotOffered):
            if self.refused is None:
                logger.warning("nats_tls_failed", error=text)
            self.refused = f"TLS failed: {text}"
        else:
            logger.debug("nats_client_error", error=repr(error))

    async def request(
        self,
        subject: str,
        data: Body = b"",
        wait_s: float = 2.0,
        headers: Headers = None,
        interim: Interim | None = None,
        answer: "asyncio.Future[Msg] | None" = None,
    ) -> Msg:
        """Return the first reply to a message that `interim` does not take. `answer`: see `RequestReply.request`.

        Raises Unavailable without one, and Refused for a message that is too large.
        """
        requests = self._requests
        if requests is None:
            requests = self._requests = await RequestReply(self.nc).start()
            self.on_disconnect.append(requests.connection_lost)
        return await requests.request(subject, encoded(data), wait_s, headers, interim, answer)

    async def has_nobody(self, subject: str, data: Body = b"", wait_s: float = 0.25) -> bool:
        """Whether nobody has subscribed to a subject: its process is dead or gone.

        A slow or stopped one stays connected; without a reply from it this takes `wait_s`.
        """
        try:
            await self.request(subject, data, wait_s)
        except NoResponders:
            return True
        except Unavailable:
            pass
        return False

    async def api(self, subject: str, body: dict[str, Any], wait_s: float = 5.0) -> dict[str, Any]:
        """Call the JetStream API. Raises Refused, or Unavailable without an answer."""
        try:
            answer = await self.request(subjects.jetstream(subject), orjson.dumps(body), wait_s)
        except Unavailable as error:
            advice = "; is it on, for this account too? (nats-server -js)" if isinstance(error, NoResponders) else ""
            raise Unavailable(f"JetStream did not answer {subject}: {error}{advice}") from error
        reply: dict[str, Any] = orjson.loads(answer.data)
        if (error_body := reply.get("error")) is not None:
            if error_body.get("err_code") in NO_LEADER:
                raise Unavailable(error_body.get("description", ""))
            raise Refused(error_body.get("err_code", 0), error_body.get("description", ""))
        return reply

    async def until_answered(self, operation: Callable[[], Awaitable[T]], attempts: int | None = None) -> T:
        """Repeat an operation as long as it raises Unavailable or Unsure, or `attempts` times."""
        for tried in itertools.count(1):
            try:
                return await operation()
            except (Unavailable, Unsure):
                if tried == attempts:
                    raise
            await self.retry_pause(tried, is_bounded=attempts is not None)
        raise AssertionError

    async def retry_pause(self, tried: int = 1, *, is_bounded: bool = False) -> None:
        """Return when something that failed `tried` times in a row may be tried again: at once after a reconnect.

        While connected it takes at most a second. Without a connection it waits for one, unless `is_bounded`.
        """
        is_bounded = is_bounded or self.is_connected
        pause_s = min(_MAX_RETRY_S, _FIRST_RETRY_S * 2 ** min(tried - 1, 10)) if is_bounded else None
        await is_set_within(self._next_connection, pause_s)

    async def send(self, subject: str, data: Body = b"", headers: Headers = None, reply: str = "") -> bool:
        """Publish without acknowledgement; False when the message was certainly not sent.

        For messages that may be lost: acknowledgements (redeliveries are harmless), heartbeats, hints.
        """
        try:
            await self.nc.publish(subject, encoded(data), reply, headers)
        except NATS_ERRORS as error:
            logger.debug("message_not_sent", subject=subject, error=repr(error))
            return False
        return True

    async def subscribe(
        self, subject: str, on_message: Callable[[Msg], Awaitable[None]], queue: str = ""
    ) -> "Subscription":
        """Call `on_message` with each message, also after a reconnect. Raises Unavailable.

        `queue`: a queue group, of whose members one receives each message.
        """
        try:
            return Subscription(await self.nc.subscribe(subject, queue, cb=on_message))
        except NATS_ERRORS as error:
            raise translated(error) from error

    async def receive(self, subject: str, handle: Callable[[Msg], None]) -> "Subscription":
        """Do what `subscribe` does, without a queue and a task of its own: `handle` must not raise."""
        try:
            return Subscription(await nats_patches.subscribe(self.nc, subject, handle))
        except NATS_ERRORS as error:
            raise translated(error) from error


class Subscription:
    """A subscription of the connection."""

    def __init__(self, subscription: NatsSubscription) -> None:
        self._subscription = subscription

    async def stop(self) -> None:
        """Unsubscribe. Without a connection there is nothing to unsubscribe."""
        with suppress(*NATS_ERRORS):
            await self._subscription.unsubscribe()


def _any_server_with_jitter(servers: list[Server], _info: dict[str, Any]) -> tuple[Server | None, float]:
    """Choose the server and the delay of a reconnect at random, so that not all clients return to a server at once."""
    server = min(servers, key=lambda s: (s.reconnects, random.random()))  # noqa: S311, a spread, not a secret
    ceiling = min(_RECONNECT_MAX_S, _RECONNECT_S * 2 ** min(server.reconnects, 6))
    return server, random.uniform(_RECONNECT_S / 2, ceiling)  # noqa: S311
