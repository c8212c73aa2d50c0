"""A nats-server that has lost something, as after a kill or a full disk: its files are of different moments."""

import shutil
from collections.abc import Awaitable, Callable

import nats

from .nats_server import NatsServer


async def forget_deliveries(
    server: NatsServer, stream: str, consumer: str, write: Callable[[], Awaitable[object]], count: int
) -> None:
    """Leave messages that nobody gets, since the consumer takes them for acknowledged: the stream's files are older.

    `write` stores `count` of them.
    """
    await write()
    server.stop()
    (messages,) = server.store.rglob(f"{stream}/msgs")
    kept = server.store.parent / f"kept-{stream}"
    shutil.copytree(messages, kept)
    server.start()
    async with await nats.connect(server.url) as client:
        subscription = await client.jetstream().pull_subscribe_bind(consumer, stream)
        for message in await subscription.fetch(count):
            await message.ack_sync()
    server.stop()
    shutil.rmtree(messages)
    shutil.move(kept, messages)
    server.start()
