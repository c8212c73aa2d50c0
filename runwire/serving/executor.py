"""Run the tools' functions: coroutines on an event loop of their own, plain functions in threads.

So nothing in a function, such as a blocking request inside a coroutine, stops the heartbeats that tell tool_runner that
the call is alive. All threads are daemons: a function that never returns does not keep the process from exiting.
"""

import asyncio
import contextvars
import inspect
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from runwire.errors import ToolError
from runwire.tools import Tool
from runwire.tools.context import ToolContext

logger = logging.getLogger("runwire.serving")

_MAX_IDLE_THREADS = 32
_BLOCKED_S = 2.0


class TooLate(Exception):
    """The process was stopped before the function began, and its call may not begin any more."""


class Execution:
    """One running function. `outcome` belongs to the loop that started it: the encoded result, or the exception.

    The exception is a value there: a future takes no StopIteration, and SystemExit would end the loop that awaits it.
    """

    def __init__(self, tools_loop: asyncio.AbstractEventLoop, may_begin: Callable[[], bool]) -> None:
        self._may_begin = may_begin
        self._loop = asyncio.get_running_loop()
        self._tools_loop = tools_loop
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.outcome: asyncio.Future[bytes | BaseException] = self._loop.create_future()

    def stop(self, reason: ToolError) -> None:
        """End with this failure, and cancel the function if it is a coroutine. Call it in the loop of the outcome."""
        self._is_stopped = True
        self._settle(reason)
        with suppress(RuntimeError):  # The process is ending.
            self._tools_loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())

    def start_coroutine(self, tool: Tool[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> None:
        """Start a coroutine function. Call it in the tools' loop."""
        if not self._is_stopped:
            self._task = self._tools_loop.create_task(self._run_coroutine(tool, arguments, ctx), name=tool.name)

    def run_plain(self, tool: Tool[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> None:
        """Run a plain function in this thread."""
        try:
            value = self._begin(tool, arguments, ctx)
            if inspect.isawaitable(value):
                value = asyncio.run_coroutine_threadsafe(asyncio.wait_for(value, None), self._tools_loop).result()
            self._end(tool.encode(value, ctx))
        except BaseException as error:  # noqa: BLE001, whatever the function raises is the call's outcome
            self._end(error)

    async def _run_coroutine(self, tool: Tool[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> None:
        try:
            self._end(tool.encode(await self._begin(tool, arguments, ctx), ctx))
        except BaseException as error:  # noqa: BLE001, whatever the function raises is the call's outcome
            self._end(error)

    def _begin(self, tool: Tool[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        if not self._may_begin():
            raise TooLate
        return tool.start(arguments, ctx)

    def _end(self, outcome: bytes | BaseException) -> None:
        if isinstance(outcome, asyncio.CancelledError):
            outcome = ToolError("the tool cancelled itself")
        with suppress(RuntimeError):  # The process is ending.
            self._loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: bytes | BaseException) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


_Job = tuple[Execution, Tool[..., Any], Mapping[str, Any], ToolContext]


class Executor:
    """One loop for all coroutines of this process, so that calls may share a client or a pool."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._starts: list[_Job] = []
        self._idle: list[_Worker] = []
        self._closing = False
        self._was_free_at: float | None = time.monotonic()
        """When the loop was last seen to turn; None once it was logged that it does not."""
        self._is_asked = False
        self._thread = threading.Thread(target=self._run_loop, name="runwire-tools", daemon=True)
        self._thread.start()

    def start(
        self,
        tool: Tool[..., Any],
        arguments: Mapping[str, Any],
        ctx: ToolContext,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> Execution:
        """Start a function with what `Tool.check` returned. `may_begin` is asked in its thread, just before it begins.

        If not, the outcome is TooLate.
        """
        execution = Execution(self._loop, may_begin)
        if tool.is_async:
            # The other loop is woken once for all calls of this turn: that costs a system call.
            if not self._starts:
                asyncio.get_running_loop().call_soon(self._start_coroutines)
            self._starts.append((execution, tool, arguments, ctx))
        else:
            worker = self._idle.pop() if self._idle else _Worker(self._idle)
            worker.jobs.put((execution, tool, arguments, ctx))
        return execution

    def _start_coroutines(self) -> None:
        starts, self._starts = self._starts, []

        def start_all() -> None:
            for execution, tool, arguments, ctx in starts:
                execution.start_coroutine(tool, arguments, ctx)

        with suppress(RuntimeError):  # The process is ending.
            self._loop.call_soon_threadsafe(start_all)

    def watch(self) -> None:
        """Log which tool keeps the loop from all others, once it has done so for 2 s. Call it every half a second."""
        if not self._is_asked:
            self._is_asked, self._was_free_at = True, time.monotonic()
            self._loop.call_soon_threadsafe(lambda: setattr(self, "_is_asked", False))
        elif self._was_free_at is not None and time.monotonic() - self._was_free_at >= _BLOCKED_S:
            self._was_free_at = None
            task = asyncio.current_task(self._loop)
            advice = "await instead, or make it a plain function, which runs in a thread"
            name = task.get_name() if task else "a callback"
            logger.warning("%s blocks all coroutines of this process: %s", name, advice)

    def close(self) -> None:
        """Cancel the coroutines that still run and stop their loop; plain functions are abandoned."""
        self._closing = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=2)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._closing:
                with suppress(SystemExit, KeyboardInterrupt):  # A task that a function started raised it.
                    self._loop.run_forever()
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            if pending:
                self._loop.run_until_complete(asyncio.wait(pending, timeout=1))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


class _Worker(threading.Thread):
    """A thread for plain functions, one at a time. It is kept for the next call, since a new thread costs more."""

    def __init__(self, idle: "list[_Worker]") -> None:
        super().__init__(daemon=True)
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._idle = idle
        self.start()

    def run(self) -> None:
        """Run functions, until too many threads have nothing to do."""
        while True:
            execution, tool, arguments, ctx = self.jobs.get()
            self.name = f"runwire-{tool.name}"
            contextvars.Context().run(execution.run_plain, tool, arguments, ctx)
            del execution, tool, arguments, ctx
            if len(self._idle) >= _MAX_IDLE_THREADS:
                return
            self._idle.append(self)
