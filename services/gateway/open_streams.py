"""Work for a client only as long as it waits."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from services.gateway.errors import TryAgain
from services.gateway.event_stream import OpenStreams

T = TypeVar("T")


async def while_connected(
    request: Request, streams: OpenStreams, work: Coroutine[Any, Any, T], said: str, **more: Any
) -> T:
    """Return what `work` gives; it is cancelled when the client leaves or the gateway stops, and TryAgain is raised with `said`.

    The request's body must have been read.
    """
    waiting = asyncio.create_task(work)
    streams.enter(waiting)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done() and not waiting.cancelled():
            return waiting.result()
        raise TryAgain(said, **more)
    finally:
        waiting.cancel()
        gone.cancel()
        await asyncio.gather(waiting, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
