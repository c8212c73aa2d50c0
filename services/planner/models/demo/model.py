"""The demo model as a `Model`: it streams its reply in small pieces, like any other."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator

from services.planner.models import wire
from services.planner.models.demo.acting import NAME, Act, act
from services.planner.models.demo.situation import situation_of
from services.planner.models.errors import ModelFailed
from services.planner.models.types import Delta, ModelRequest, Reply

_PIECE = re.compile(r"\s*\S{1,8}|\s+$")


class DemoModel:
    """Replies by rules, from the facts of a request. `pause_s`: time between two deltas."""

    def __init__(self, *, pause_s: float = 0.004) -> None:
        self._pause_s = pause_s

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed for any other name."""
        if request.model != NAME:
            raise ModelFailed("model_failed", f"there is no model {request.model}; the demo model is {NAME}", calls=0)
        reply = play(request)
        for piece in pieces(reply.reasoning):
            yield Delta(reasoning=piece)
            await asyncio.sleep(self._pause_s)
        for piece in pieces(reply.text):
            yield Delta(piece)
            await asyncio.sleep(self._pause_s)
        usage = wire.estimate(request.messages, reply.text, reply.reasoning).model_copy(
            update={"cost_usd": 0.0, "estimated": False}
        )
        yield Reply(text=reply.text, reasoning=reply.reasoning, usage=usage, finish_reason="stop", model=NAME)


def play(request: ModelRequest) -> Act:
    """Reply to a request: reasoning, and the text of one action."""
    return act(situation_of(request))


def pieces(text: str) -> Iterator[str]:
    """Split a text into small pieces, like the deltas of a model."""
    yield from _PIECE.findall(text)
