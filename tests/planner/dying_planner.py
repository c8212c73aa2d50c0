"""A planner that kills itself when it stores a certain record (`tests.support.dying_planners`).

Arguments: the address of NATS, that of the model server, a text in the record, and the moment. `before`: the record is
not sent. `stored`: it is stored, and its acknowledgement was not received. `known`: that has been handled. A fifth
argument, for a message that is no record: the first word of its subject.
"""

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any, cast

from services.messaging.connection import Bus
from tests.support.buses import processed
from tests.support.model_server import ModelServer
from tests.support.run_services import planning


def kill_itself() -> None:
    """End this process without any cleaning up."""
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, model_url: str, text: bytes, moment: str, word: str = "emit", **settings: Any) -> None:
    """Plan until the record comes, with these settings."""
    publish = Bus.publish_acknowledged

    async def publish_and_die(bus: Bus, subject: str, data: bytes, *more: Any, **options: Any) -> Any:
        if text not in data or not subject.startswith(f"{word}."):
            return await publish(bus, subject, data, *more, **options)
        if moment == "before":
            kill_itself()
        writing = asyncio.ensure_future(publish(bus, subject, data, *more, **options))
        if moment == "stored":
            await asyncio.sleep(0)
            await processed(bus.nc)
            kill_itself()
        await writing
        kill_itself()
        raise AssertionError

    Bus.publish_acknowledged = publish_and_die  # type: ignore[method-assign, assignment]
    async with planning(url, cast("ModelServer", SimpleNamespace(url=model_url)), **settings):
        await asyncio.Event().wait()


def run(*what: Any, **settings: Any) -> None:
    asyncio.run(main(*what, **settings))
