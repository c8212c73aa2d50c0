"""Where authors' functions run: coroutines on an event loop of their own, plain functions in a thread each.

So nothing that an author's code does, a blocking request inside a coroutine for instance, stops the heartbeats that
tell tool_runner that the call is alive. All threads are daemons: a function that never returns does not keep the
process from ending.
"""

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from runwire.tools.context import ToolContext
from runwire.tools.decorator import Tool

Outcome = concurrent.futures.Future[bytes]


class Exited(RuntimeError):
    """The tool's function tried to end the process that serves it."""


class Workers:
    """One loop for all coroutines of this process, so that authors may share a client or a pool among calls."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="runwire-tools", daemon=True)
        self._thread.start()

    def start(self, tool: Tool[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> Outcome:
        """Start the function; the future gives the encoded result or the function's exception.

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
        """Cancel the coroutines that still run and end their loop; plain functions are abandoned."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=2)

    def _turn(self) -> None:
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
            value = _guarded(lambda: tool.start(arguments, ctx))
            if inspect.isawaitable(value):
                value = asyncio.run_coroutine_threadsafe(_awaited(value), self._loop).result()
            outcome.set_result(tool.encode(value))
        except Exception as error:  # noqa: BLE001, whatever the author's code raises is the call's outcome
            outcome.set_exception(error)


async def _coroutine(tool: Tool[..., Any], arguments: Mapping[str, Any], ctx: ToolContext) -> bytes:
    try:
        return tool.encode(await tool.start(arguments, ctx))
    except (SystemExit, KeyboardInterrupt) as error:
        # Either would end the loop under all other calls.
        raise Exited(f"the tool ended with {type(error).__name__}") from error


async def _awaited(value: Any) -> Any:
    return await value


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (SystemExit, KeyboardInterrupt) as error:
        raise Exited(f"the tool ended with {type(error).__name__}") from error
