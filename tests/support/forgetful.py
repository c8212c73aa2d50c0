"""A nats-server that has forgotten something, as after a kill or a full disk: its files are put together from different moments."""

import shutil
from collections.abc import Awaitable, Callable

from .nats_server import NatsServer


async def forget_expiry(
    server: NatsServer, stream: str, write: Callable[[], Awaitable[object]], gone: Callable[[], Awaitable[None]]
) -> None:
    """Leave messages with a time to live in a stream that the server will never remove.

    `write` stores them; `gone` returns once they have expired. Afterwards they are there again, and their timers are not.
    """
    await write()
    server.stop()
    (messages,) = server.store.rglob(f"{stream}/msgs")
    kept = server.store.parent / f"kept-{stream}"
    shutil.copytree(messages, kept)
    server.start()
    await gone()
    server.stop()
    timers = (messages / "thw.db").read_bytes()
    shutil.rmtree(messages)
    shutil.move(kept, messages)
    (messages / "thw.db").write_bytes(timers)
    server.start()
