"""Serve tools over NATS: all tools of some files in one process."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from runwire.credentials import find_login
from runwire.errors import InvalidCredential, ToolsNotAllowed, ToolsNotLoaded
from runwire.serving.caller_clock import CallerClock, StallDetector
from runwire.serving.connection import Connection
from runwire.serving.executor import Executor
from runwire.serving.loading import authors_trace, load_tools, remarks, unique
from runwire.serving.tool_server import ToolServer
from runwire.tools.decorator import HEARTBEAT_INTERVAL_S, Tool

logger = logging.getLogger("runwire.serving")

_GRACE_PERIOD_S = 10.0
_EXIT_PERIOD_S = 2.0
"""What threads of a tool's libraries get once nothing is served any more."""
_HEALTH_FILE_INTERVAL_S = 2.0
_OFFERED_S = 10.0
"""A tool that is not offered by then is named."""

Check = Callable[[], str | None]
"""Returns why tools cannot work, as a sentence, or None."""


async def serve(
    tools: Iterable[Tool[..., Any]],
    url: str | None = None,
    *,
    user: str | None = None,
    password: str | None = None,
    credentials: str | Path | None = None,
    health_file: str | Path | None = None,
    grace_s: float = _GRACE_PERIOD_S,
    stop: asyncio.Event | None = None,
    check: Check | None = None,
) -> None:
    """Serve tools until `stop` is set or this task is cancelled; waits for a NATS server that does not answer yet.

    Args:
        tools: the tools; their names must differ.
        url: of NATS, several separated by commas; may hold the login.
        user: of NATS.
        password: of NATS.
        credentials: a credential file. Where nothing is given, `runwire.credentials` finds NATS and the login.
        health_file: is touched every two seconds while NATS is connected and denies none of the tools.
        grace_s: seconds that running calls get to end when serving stops.
        stop: set it to stop without losing a call.
        check: returns why the tools cannot work, as a sentence, or None; asked for the health file only.

    Raises:
        ToolsNotLoaded: two tools have the same name.
        InvalidCredential: the credential file, the URL or the certificate authority cannot be used.
        IncompleteLogin: there is a user without a password, or a password without a user.
        ToolsNotAllowed: NATS allows none of the tools to this user.
    """
    named = unique(tools)
    stop = stop or asyncio.Event()
    servers: list[ToolServer] = []

    def on_disconnect() -> None:
        for server in servers:
            server.on_disconnect()

    connection = Connection(find_login(url, credentials, user, password), [tool.name for tool in named], on_disconnect)
    background: list[asyncio.Task[None]] = []
    if health_file:
        background.append(asyncio.create_task(_keep_health_file(Path(health_file), connection, check)))
    executor = Executor()
    stall, clock = StallDetector(), CallerClock()
    try:
        if not await _until(stop, connection.open()):
            return
        servers += [ToolServer(connection.client, tool, executor, stall, clock) for tool in named]
        background.append(asyncio.create_task(_send_heartbeats(servers, stall, executor)))
        for server in servers:
            await server.start()
        await connection.settle()
        if allowed := [tool.name for tool in named if tool.name not in connection.denied_tools]:
            logger.info("serving %s", ", ".join(allowed))
            background.append(asyncio.create_task(_say_offered(servers, set(allowed))))
        await _until(stop, connection.watch_permissions())
        await asyncio.gather(*(server.stop(grace_s) for server in servers))
    finally:
        for task in background:
            task.cancel()
        executor.close()
        await connection.close()
        await asyncio.gather(*background, return_exceptions=True)


async def _say_offered(servers: Sequence[ToolServer], allowed: set[str]) -> None:
    """Say of each tool when it is offered, and after a while which ones are not."""
    waiting = {asyncio.create_task(each.offered.wait(), name=each.name) for each in servers if each.name in allowed}
    patience: float | None = _OFFERED_S
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                logger.info("%s is offered", task.get_name())
            if not done and waiting:
                names = ", ".join(sorted(task.get_name() for task in waiting))
                logger.warning("%s: not offered yet; `runwire doctor` says why, on the platform's machine", names)
                patience = None
    finally:
        for task in waiting:
            task.cancel()


async def _send_heartbeats(servers: Sequence[ToolServer], stall: StallDetector, executor: Executor) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_INTERVAL_S)
        stall.tick()
        executor.watch()
        for server in servers:
            await server.send_heartbeats()


async def _keep_health_file(file: Path, connection: Connection, check: Check | None) -> None:
    """Touch the file every two seconds while the connection and the tools work, remove it otherwise and at the end.

    A process that is stopped or killed leaves the file behind: then the file gets old.
    """

    def show(*, works: bool) -> None:
        if works:
            file.touch()
        else:
            file.unlink(missing_ok=True)

    try:
        while True:
            show(works=connection.works and (check is None or check() is None))
            await asyncio.sleep(_HEALTH_FILE_INTERVAL_S)
    finally:
        show(works=False)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work ended before `stop` was set, which cancels it. Raises what the work raises."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        stopped.cancel()
        working.cancel()


def tools_of(paths: Sequence[str | Path]) -> list[Tool[..., Any]]:
    """Return the tools of Python files. Exits with a message when a file cannot be served."""
    try:
        return unique(tool for path in paths for tool in load_tools(path))
    except ToolsNotLoaded as error:
        raise SystemExit(str(error)) from error
    except Exception as error:  # noqa: BLE001, a file may raise anything while it is loaded
        raise SystemExit(authors_trace(error)) from None


def main(
    paths: Sequence[str | Path],
    url: str | None = None,
    *,
    credentials: str | Path | None = None,
    health_file: str | Path | None = None,
    grace_s: float = _GRACE_PERIOD_S,
    log_level: str = "INFO",
) -> None:
    """Serve the tools of Python files until SIGTERM or SIGINT.

    Exits with a message when a file cannot be served, or NATS allows none of its tools.
    """
    _configure_logging(log_level)
    tools = tools_of(paths)
    for remark in remarks(tools):
        logger.warning(remark)
    logger.disabled = False  # The file may have configured logging.
    run(tools, url, credentials=credentials, health_file=health_file, grace_s=grace_s)


def run(
    tools: Sequence[Tool[..., Any]],
    url: str | None = None,
    *,
    credentials: str | Path | None = None,
    health_file: str | Path | None = None,
    grace_s: float = _GRACE_PERIOD_S,
    check: Check | None = None,
) -> None:
    """Serve tools until SIGTERM or SIGINT; arguments as of `serve`. Exits with a message when NATS allows none."""
    _configure_logging("INFO")

    async def until_signalled() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(
            tools, url, credentials=credentials, health_file=health_file, grace_s=grace_s, stop=stop, check=check
        )

    try:
        import uvloop  # noqa: PLC0415, it has no build for Windows
    except ImportError:
        new_loop = None
    else:  # It is faster with the connection to NATS; the tools' functions run on Python's own loop.
        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            runner.run(until_signalled())
        except (InvalidCredential, ToolsNotAllowed) as error:
            raise SystemExit(str(error)) from None
    end = threading.Timer(_EXIT_PERIOD_S, os._exit, [0])  # A thread of a library may never end.
    end.daemon = True
    end.start()


def _configure_logging(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("nats").setLevel(logging.ERROR)
