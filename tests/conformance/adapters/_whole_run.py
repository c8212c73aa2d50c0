"""One nats-server, provider, planner and tool runner for all vectors that are whole runs, started at the first one."""

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from contracts.runs.events import Asked
from contracts.runs.inbox import CancelRequested
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from contracts.wire.names import new_id
from tests.support.model_server import ModelServer, Say
from tests.support.nats_server import NatsServer
from tests.support.run_services import Handler, Story, planning, tools_at_work

T = TypeVar("T")
Tools = Mapping[str, tuple[ToolSpec, Handler | None]]
AGENTS = {"judged": {"reflection": {"threshold": 0, "max_revisions": 0}}}
"""An answer of this agent is judged and never revised."""


class Stack:
    """Everything that a run needs, in a loop of its own. Runs go one after another."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="runwire-"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="whole-runs", daemon=True)
        self._open = contextlib.AsyncExitStack()
        self._server = NatsServer(self._folder / "nats")
        self._server.start()
        self._model = ModelServer().__enter__()
        self._thread.start()
        made = planning(self._server.url, self._model, agents=AGENTS, folder=self._folder)
        self._planning = self._run(self._open.enter_async_context(made))

    def stop(self) -> None:
        self._run(self._open.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._model.__exit__()
        self._server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def tell(
        self, replies: list[Say], tools: Tools, *, cancel_at_turn: int | None = None, **fields: Any
    ) -> Story:
        """Let the model say these replies, one after another, and follow one run to its end.

        It may be cancelled in a turn.
        """
        running = asyncio.run_coroutine_threadsafe(self._tell(replies, tools, cancel_at_turn, fields), self._loop)
        return await asyncio.wrap_future(running)

    def requests(self) -> int:
        """How many requests the provider has received for the last run."""
        return len(self._model.ledger)

    async def _tell(
        self, replies: list[Say], tools: Tools, cancel_at_turn: int | None, fields: dict[str, Any]
    ) -> Story:
        query = f"vector {new_id()}"
        self._model.reset()
        self._model.say(*replies, marker=query)
        async with tools_at_work(self._planning, self._server.url, tools):
            run = await self._planning.ask(query, tools=sorted(tools), **fields)
            if cancel_at_turn is not None:
                await self._planning.until(run, lambda event: isinstance(event, Asked) and event.turn == cancel_at_turn)
                message = CancelRequested(reason="the vector says so").model_dump_json().encode()
                await self._planning.bus.publish(subjects.control("default", run, "cancel"), message)
            return await self._planning.ended(run)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


_started: list[Stack] = []


def stack() -> Stack:
    if not _started:
        _started.append(Stack())
    return _started[0]


def stop() -> None:
    while _started:
        _started.pop().stop()
