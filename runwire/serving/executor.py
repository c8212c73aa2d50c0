"""Run the tools' functions: coroutines on an event loop of their own, plain functions in a thread each.

So nothing in a function, such as a blocking request inside a coroutine, stops the heartbeats that tell tool_runner that
the call is alive. All threads are daemons: a function that never returns does not keep the process from exiting.
"""

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from runwire.tools import Tool
from runwire.tools.context import ToolContext

Outcome = concurrent.futures.Future[bytes]


class Exited(RuntimeError):
    """The tool's function tried to end the process that serves it."""


class Executor:
    """One loop for all coroutines of this process, so that calls may share a client or a pool."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="runwire-tools", daemon=True)
        self._thread.start()

    def start(self, tool: Tool[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> Outcome:
        """Start the function; the future holds the encoded result or the function's exception.

        Cancelling it cancels a coroutine.
        """
        if tool.is_async:
            return asyncio.run_coroutine_threadsafe(_coroutine(tool, arguments, ctx), self._loop)
        outcome: Outcome = concurrent.futures.Future()
        threading.Thread(
            target=self._plain, args=(outcome, tool, arguments, ctx), name=f"runwire-{tool.name}", daemon=True
        ).start()
        return outcome

    def close(self) -> None:
        """Cancel the coroutines that still run and stop their loop; plain functions are abandoned."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=2)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            if pending:
                self._loop.run_until_complete(asyncio.wait(pending, timeout=1))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _plain(self, outcome: Outcome, tool: Tool[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> None:
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            value = _refuse_exit(lambda: tool.start(arguments, ctx))
            if inspect.isawaitable(value):
                value = asyncio.run_coroutine_threadsafe(_awaited(value), self._loop).result()
            outcome.set_result(tool.encode(value))
        except Exception as error:  # noqa: BLE001, whatever the function raises is the call's outcome
            outcome.set_exception(error)


async def _coroutine(tool: Tool[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> bytes:
    try:
        return tool.encode(await tool.start(arguments, ctx))
    except (SystemExit, KeyboardInterrupt) as error:
        # Either would stop the loop, and with it all other calls.
        raise Exited(f"the tool ended with {type(error).__name__}") from error


async def _awaited(value: Any) -> Any:
    return await value


def _refuse_exit(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (SystemExit, KeyboardInterrupt) as error:
        raise Exited(f"the tool ended with {type(error).__name__}") from error
