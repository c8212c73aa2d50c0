"""What attackers meet: a server with all streams, and connections of its users, or of anybody where it has none."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.wire.names import new_id
from contracts.wire.subjects import replies_to
from services.artifact_store.app import running
from services.messaging.connection import Bus
from services.messaging.errors import Refused
from services.messaging.nats_link import NatsLink
from services.runtime.health import Health
from services.runtime.settings import BusSettings
from services.shared.artifacts.client import ArtifactClient
from tests.support.buses import connected, processed
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stores import Store, settings_for
from tests.support.waiting import wait_until


@dataclass
class Attacker:
    """A connection of somebody who tries more than it may.

    `complaints`: what the server has denied. `received`: all messages of all subscriptions.
    """

    client: Client
    complaints: list[str]
    received: list[Msg] = field(default_factory=list)

    async def publish(self, subject: str, data: bytes = b"", reply: str = "") -> None:
        """Publish, and return once the server has handled it."""
        await self.client.publish(subject, data, reply)
        await processed(self.client)

    async def subscribe(self, subject: str, queue: str = "") -> None:
        """Subscribe, and return once the server has handled it."""

        async def on_message(message: Msg) -> None:
            self.received.append(message)

        await self.client.subscribe(subject, queue, cb=on_message)
        await processed(self.client)

    async def request(self, subject: str, data: bytes = b"") -> Msg | None:
        """What is replied, or None once the server has complained."""
        inbox = self.client.new_inbox()
        before = len(self.received)
        await self.subscribe(inbox)
        await self.publish(subject, data, inbox)
        replied = await self.achieves(lambda: self.received[before:])
        return self.received[before] if replied else None

    async def reaches(self, other: "Attacker") -> bool:
        """Whether a message comes to another connection, or to this one, before the server complains."""
        return await self.achieves(lambda: other.received)

    async def achieves(self, happened: Callable[[], Any]) -> bool:
        """Wait until something has happened, or the server has complained; return whether it happened."""

        async def looked() -> bool:
            found = happened()
            return bool(await found if isinstance(found, Awaitable) else found)

        async def is_over() -> bool:
            return bool(self.complaints) or await looked()

        await wait_until(is_over, what="the attack succeeded or the server complained")
        await processed(self.client)
        return await looked()


@dataclass
class Scene:
    """A server and who is connected to it. `operator` may look at everything."""

    server: NatsServer
    operator: Bus
    stack: contextlib.AsyncExitStack
    run: str = field(default_factory=new_id)

    @property
    def log(self) -> str:
        """The log of a run of the tenant `other`, whom no attacker works for."""
        return f"emit.other.{self.run}.log"

    async def as_(self, user: str, **options: Any) -> Attacker:
        """Connect as a user. On a server without users everybody is the same one."""
        complaints: list[str] = []

        async def on_error(error: Exception) -> None:
            complaints.append(str(error))

        options = {"inbox_prefix": replies_to(user).encode(), **self.server.login(user), **options}
        client = await nats.connect(self.server.url, error_cb=on_error, allow_reconnect=False, **options)
        self.stack.push_async_callback(client.close)
        return Attacker(client, complaints)

    async def bus_of(self, user: str, settings: BusSettings | None = None) -> Bus:
        settings = settings or BusSettings(**self.server.settings(user))
        return await self.stack.enter_async_context(connected(self.server.url, user, settings))

    async def messages(self, stream: str) -> int | None:
        """How many messages a stream has; None: it is gone."""
        try:
            return int((await self.operator.api(f"STREAM.INFO.{stream}", {}))["state"]["messages"])
        except Refused:
            return None

    async def grows(self, stream: str, attacker: Attacker, attempt: Awaitable[None]) -> bool:
        """Whether an attempt has led to a message in a stream."""
        before = await self.messages(stream)
        await attempt

        async def has_grown() -> bool:
            return await self.messages(stream) != before

        return await attacker.achieves(has_grown)

    async def stores(self, user: str, stream: str, subject: str, data: bytes = b"{}", reply: str = "") -> bool:
        """Whether what a user publishes leads to a message in a stream."""
        me = await self.as_(user)
        return await self.grows(stream, me, me.publish(subject, data, reply))

    async def write(self, subject: str, body: Any = None) -> None:
        await self.operator.publish(subject, json.dumps(body or {}).encode())


@contextlib.asynccontextmanager
async def storing(scene: Scene, s3: S3Server) -> AsyncIterator[Store]:
    """The real artifact store as its own user, and a client that is the gateway."""
    settings = settings_for(s3, **scene.server.settings("artifact_store"))
    link = NatsLink(Bus("artifact_store", settings))
    health = Health(link.name, link.problems)
    await link.connect()
    try:
        async with running(settings, link.bus, health) as collector:
            health.started = True
            await wait_until(lambda: not health.problems(), what="the store is ready")
            client = ArtifactClient(await scene.bus_of("gateway"))
            yield Store(client, link.bus, collector, s3, settings)
            assert health.problems() == []
    finally:
        await link.leave()
