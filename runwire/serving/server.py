"""Serve tools over NATS: all tools of some files in one process."""

import asyncio
import logging
import os
import signal
import traceback
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from runwire.errors import IncompleteLogin, ToolsNotLoaded
from runwire.local.data_folder import data_dir, nats_login, remembered
from runwire.local.embedded_nats import last_port, url_of
from runwire.serving.executor import Executor
from runwire.serving.loading import load_tools, unique
from runwire.serving.stall import StallDetector
from runwire.serving.tool_server import ToolServer
from runwire.tools.decorator import HEARTBEAT_INTERVAL_S, Tool

logger = logging.getLogger("runwire.serving")

_GRACE_PERIOD_S = 10.0


async def serve(
    tools: Iterable[Tool[..., Any]],
    url: str | None = None,
    *,
    user: str | None = None,
    password: str | None = None,
    grace_s: float = _GRACE_PERIOD_S,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve tools until `stop` is set or this task is cancelled; waits for a NATS server that does not answer yet.

    Args:
        tools: the tools; their names must differ.
        url: of NATS, several separated by commas; default: RUNWIRE_NATS_URL, else the server that `runwire up` starts
            from the data folder (RUNWIRE_DATA_DIR, else .runwire), at its present or last port, else
            nats://127.0.0.1:4222.
        user: of NATS; default: RUNWIRE_NATS_USER, else the login in the data folder, for its own server only.
        password: of NATS; default: RUNWIRE_NATS_PASSWORD, else as above.
        grace_s: seconds that running calls get to end when serving stops.
        stop: set it to stop without losing a call.

    Raises:
        ToolsNotLoaded: two tools have the same name.
        IncompleteLogin: there is a user without a password, or a password without a user.
    """
    named = unique(tools)
    stop = stop or asyncio.Event()
    closing = _Closing()
    servers: list[ToolServer] = []
    client = await _connection(_connect(url, user, password, closing, servers), stop)
    if client is None:
        return
    executor = Executor()
    stall = StallDetector()
    servers += [ToolServer(client, tool, executor, stall) for tool in named]
    heartbeats = asyncio.create_task(_send_heartbeats(servers, stall))
    try:
        for server in servers:
            await server.start()
        logger.info("serving %s", ", ".join(tool.name for tool in named))
        await stop.wait()
        await asyncio.gather(*(server.stop(grace_s) for server in servers))
    finally:
        heartbeats.cancel()
        executor.close()
        await closing.close(client)


async def _send_heartbeats(servers: Sequence[ToolServer], stall: StallDetector) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_INTERVAL_S)
        stall.tick()
        for server in servers:
            await server.send_heartbeats()


class _Closing:
    """Closes the connection, whatever its state.

    nats-py cancels its reconnecting task once, and `wait_for` of Python 3.11 may swallow that: then the task's next
    connection error ends it.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def close(self, client: Client) -> None:
        """Close this connection."""
        self._task = asyncio.create_task(client.close())
        await asyncio.wait({self._task})

    def check(self) -> None:
        """Raise CancelledError in a task of nats-py whose connection is being closed."""
        if self._task not in (None, asyncio.current_task()):
            raise asyncio.CancelledError


async def _connection(connecting: Coroutine[Any, Any, Client], stop: asyncio.Event) -> Client | None:
    """Return the connection, or None when `stop` was set before there was one."""
    connection, stopped = asyncio.create_task(connecting), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({connection, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return connection.result() if connection.done() else None
    finally:
        stopped.cancel()
        connection.cancel()


async def _connect(
    url: str | None, user: str | None, password: str | None, closing: _Closing, servers: Sequence[ToolServer]
) -> Client:
    url = (
        url
        or os.environ.get("RUNWIRE_NATS_URL")
        or remembered(data_dir()).get("nats_url")
        or url_of(last_port(data_dir()))
    )
    user = user or os.environ.get("RUNWIRE_NATS_USER")
    password = password or os.environ.get("RUNWIRE_NATS_PASSWORD")
    if bool(user) != bool(password):
        raise IncompleteLogin("RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD are set together, or neither")
    addresses = ", ".join(one.rpartition("@")[2] for one in url.split(","))
    logged: set[str] = set()

    async def on_error(error: Exception) -> None:
        closing.check()
        # While the server is unavailable the same error comes with every attempt.
        if (text := repr(error)) not in logged:
            logged.add(text)
            logger.warning("NATS at %s: %s%s", addresses, text, _hint(error))

    async def on_disconnect() -> None:
        for server in servers:
            server.on_disconnect()

    async def on_reconnect() -> None:
        logged.clear()
        logger.info("connected to NATS again")

    return await nats.connect(
        servers=url.split(","),
        name="runwire-tools",
        # Nothing is sent late: after a disconnect the caller asks for the state of its call again.
        pending_size=0,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.25,
        ping_interval=5,
        connect_timeout=2,
        error_cb=on_error,
        disconnected_cb=on_disconnect,
        reconnected_cb=on_reconnect,
        **_login(url, user, password),
    )


def _login(url: str, user: str | None, password: str | None) -> dict[str, Any]:
    """User and password as given, else those of the data folder.

    The latter are read at every attempt to connect, since `runwire up` may start later.
    """
    if user and password:
        return {"user": user, "password": password}
    if "@" in url:
        return {}
    data = data_dir()
    return {name: lambda name=name: nats_login(data, url).get(name, "") for name in ("user", "password")}


def _hint(error: Exception) -> str:
    """What the user may do about it."""
    if isinstance(error, OSError):
        return "; it is tried again until it answers"
    if "authorization violation" in str(error).lower():
        return (
            "; set RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD, "
            "or RUNWIRE_DATA_DIR to the data folder of its `runwire up`"
        )
    return ""


def main(
    paths: Sequence[str | Path], url: str | None = None, *, grace_s: float = _GRACE_PERIOD_S, log_level: str = "INFO"
) -> None:
    """Serve the tools of Python files until SIGTERM or SIGINT.

    Exits with a message when a file cannot be served.
    """
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("nats").setLevel(logging.ERROR)
    try:
        tools = unique(tool for path in paths for tool in load_tools(path))
    except ToolsNotLoaded as error:
        raise SystemExit(str(error)) from error
    except Exception as error:  # noqa: BLE001, a file may raise anything while it is loaded
        raise SystemExit(_own_traceback(error)) from None
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            runner.run(_until_signalled(tools, url, grace_s))
        except IncompleteLogin as error:
            raise SystemExit(str(error)) from None


def _own_traceback(error: Exception) -> str:
    """The traceback without Runwire's own frames: the author of the file is interested in the others."""
    trace = traceback.TracebackException.from_exception(error)
    runwire = str(Path(__file__).parents[1])
    frames = [frame for frame in trace.stack if not frame.filename.startswith((runwire, "<frozen importlib"))]
    trace.stack = traceback.StackSummary.from_list(frames)
    return "".join(trace.format()).rstrip()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, where it is installed, for the connection to NATS; the functions run on Python's own."""
    try:
        import uvloop  # noqa: PLC0415, it has no build for Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _until_signalled(tools: list[Tool[..., Any]], url: str | None, grace_s: float) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(tools, url, grace_s=grace_s, stop=stop)
