"""Serve tools over NATS, all tools of some files in one process."""

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

from runwire.local.data_folder import data_dir, nats_login, remembered
from runwire.local.embedded_nats import last_port, url_of
from runwire.serving.executor import Workers
from runwire.serving.loading import ToolsNotLoaded, load_tools, unique
from runwire.serving.stall import Waking
from runwire.serving.tool_server import ServedTool
from runwire.tools.decorator import BEAT_S, Tool

logger = logging.getLogger("runwire.serving")

_GRACE_S = 10.0


class HalfALogin(ValueError):
    """A user without a password, or a password without a user: NATS would take it for another login, or for none."""


async def serve(
    tools: Iterable[Tool[..., Any]],
    url: str | None = None,
    *,
    user: str | None = None,
    password: str | None = None,
    grace_s: float = _GRACE_S,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve tools until `stop` is set or this task is cancelled; waits for a server that is not there yet.

    Args:
        tools: what to serve; names must differ.
        url: of NATS, several separated by commas; default: RUNWIRE_NATS_URL, else the server that `runwire up` starts
            from the data folder (RUNWIRE_DATA_DIR, else .runwire), where it is or was last, else nats://127.0.0.1:4222.
        user: of NATS; default: RUNWIRE_NATS_USER, else what the data folder says of its own server.
        password: of NATS; default: RUNWIRE_NATS_PASSWORD, else as above.
        grace_s: for calls in flight when it is time to stop.
        stop: set it to stop in good order.

    Raises:
        ToolsNotLoaded: two tools bear the same name.
        HalfALogin: there is a user without a password, or the other way round.
    """
    named = unique(tools)
    stop = stop or asyncio.Event()
    leaving = _Leaving()
    served: list[ServedTool] = []
    client = await _connected(_connect(url, user, password, leaving, served), stop)
    if client is None:
        return
    workers = Workers()
    waking = Waking()
    served += [ServedTool(client, tool, workers, waking) for tool in named]
    beating = asyncio.create_task(_beat(served, waking))
    try:
        for one in served:
            await one.start()
        logger.info("serving %s", ", ".join(tool.name for tool in named))
        await stop.wait()
        await asyncio.gather(*(one.stop(grace_s) for one in served))
    finally:
        beating.cancel()
        workers.close()
        await leaving.close(client)


async def _beat(served: Sequence[ServedTool], waking: Waking) -> None:
    while True:
        await asyncio.sleep(BEAT_S)
        waking.tick()
        for one in served:
            await one.beat()


class _Leaving:
    """Closes the connection, whatever its state.

    nats-py cancels its reconnecting once, and `wait_for` of Python 3.11 may swallow that: its next error ends it
    instead.
    """

    def __init__(self) -> None:
        self._closing: asyncio.Task[None] | None = None

    async def close(self, client: Client) -> None:
        """Close this connection."""
        self._closing = asyncio.create_task(client.close())
        await asyncio.wait({self._closing})

    def check(self) -> None:
        """Raise CancelledError in a task that works on a connection which is being closed."""
        if self._closing not in (None, asyncio.current_task()):
            raise asyncio.CancelledError


async def _connected(connecting: Coroutine[Any, Any, Client], stop: asyncio.Event) -> Client | None:
    """Return the connection, or None when it was time to stop before there was one."""
    connection, stopped = asyncio.create_task(connecting), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({connection, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return connection.result() if connection.done() else None
    finally:
        stopped.cancel()
        connection.cancel()


async def _connect(
    url: str | None, user: str | None, password: str | None, leaving: _Leaving, served: Sequence[ServedTool]
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
        raise HalfALogin("RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD are set together, or neither")
    places = ", ".join(one.rpartition("@")[2] for one in url.split(","))
    seen: set[str] = set()

    async def on_error(error: Exception) -> None:
        leaving.check()
        # While the server is unavailable the same error comes with every attempt.
        if (text := repr(error)) not in seen:
            seen.add(text)
            logger.warning("NATS at %s: %s%s", places, text, _hint(error))

    async def on_disconnect() -> None:
        for one in served:
            one.lose_connection()

    async def on_reconnect() -> None:
        seen.clear()
        logger.info("connected to NATS again")

    return await nats.connect(
        servers=url.split(","),
        name="runwire-tools",
        # Nothing is flushed late: what a cut-off process had to say is asked for again.
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
    """User and password as given; else those of the data folder, read at every attempt, since `runwire up` may be started later."""
    if user and password:
        return {"user": user, "password": password}
    if "@" in url:
        return {}
    data = data_dir()
    return {name: lambda name=name: nats_login(data, url).get(name, "") for name in ("user", "password")}


def _hint(error: Exception) -> str:
    """What the author may do about it."""
    if isinstance(error, OSError):
        return "; it is tried again until it answers"
    if "authorization violation" in str(error).lower():
        return "; set RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD, or RUNWIRE_DATA_DIR to the data folder of its `runwire up`"
    return ""


def main(
    paths: Sequence[str | Path], url: str | None = None, *, grace_s: float = _GRACE_S, log_level: str = "INFO"
) -> None:
    """Serve the tools of Python files until SIGTERM or SIGINT.

    Ends the process with a sentence when a file cannot be served.
    """
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("nats").setLevel(logging.ERROR)
    try:
        tools = unique(tool for path in paths for tool in load_tools(path))
    except ToolsNotLoaded as error:
        raise SystemExit(str(error)) from error
    except Exception as error:  # noqa: BLE001, a file may raise anything while it is read
        raise SystemExit(_told_to_its_author(error)) from None
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            runner.run(_until_told(tools, url, grace_s))
        except HalfALogin as error:
            raise SystemExit(str(error)) from None


def _told_to_its_author(error: Exception) -> str:
    """The traceback through the author's own files; how we came to read them is of no use to anybody."""
    told = traceback.TracebackException.from_exception(error)
    own = str(Path(__file__).parents[1])
    theirs = [frame for frame in told.stack if not frame.filename.startswith((own, "<frozen importlib"))]
    told.stack = traceback.StackSummary.from_list(theirs)
    return "".join(told.format()).rstrip()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, where it is installed, for the conversation with NATS; the functions' own loop is Python's."""
    try:
        import uvloop  # noqa: PLC0415, it has no build for Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _until_told(tools: list[Tool[..., Any]], url: str | None, grace_s: float) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(tools, url, grace_s=grace_s, stop=stop)
