"""Serve tools over NATS: all tools of some files in one process; and load tools from Python files."""

import asyncio
import hashlib
import importlib.util
import inspect
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from contracts.wire import names as wire_names
from runwire.credentials import find_login
from runwire.errors import InvalidCredential, ToolsNotAllowed, ToolsNotLoaded
from runwire.serving.connection import CallerClock, Connection, StallDetector
from runwire.serving.executor import Executor
from runwire.serving.tool_server import ToolServer, authors_trace
from runwire.tools.decorator import HEARTBEAT_INTERVAL_S, Tool

logger = logging.getLogger("runwire.serving")

_GRACE_PERIOD_S = 10.0
_EXIT_PERIOD_S = 2.0
"""What threads of a tool's libraries get once nothing is served any more."""
_HEALTH_FILE_INTERVAL_S = 2.0
_OFFERED_S = 10.0
"""A tool that is not offered by then is named."""
_NEEDED_PACKAGES = {"runwire", wire_names.__name__.partition(".")[0]}
"""In a checkout the contracts are a package of their own; in the wheel they are inside `runwire`."""
_FOLDERS: list[str] = []
"""First on the path, the first file's first: its name stays its own, also in processes that its tools start."""

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
) -> None:
    """Serve the tools of Python files until SIGTERM or SIGINT.

    Exits with a message when a file cannot be served, or NATS allows none of its tools.
    """
    _configure_logging()
    tools = tools_of(paths)
    for remark in remarks(tools):
        logger.warning(remark)
    logger.disabled = False  # The file may have configured logging.
    run(tools, url, credentials=credentials, health_file=health_file)


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
    _configure_logging()

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


def _configure_logging() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("nats").setLevel(logging.ERROR)


def load_tools(path: str | Path) -> list[Tool[..., Any]]:
    """Run a Python file and return its tools, by name.

    The file may import modules of its folder, and is a module of this folder itself, under its own name where that is
    free: processes that its tools start can then import it, as pools with `spawn` and `forkserver` do.

    Raises ToolsNotLoaded for what is missing or not a Python file, has no tool, or would hide a package that this
    process needs.
    What the file itself raises passes through, except for SystemExit.
    """
    file = Path(path).expanduser().resolve()
    if not file.exists():
        raise ToolsNotLoaded(f"there is no file {path}")
    if file.suffix != ".py" or not file.is_file():
        raise ToolsNotLoaded(f"{path} is not a Python file")
    _refuse_shadows(file)
    module = _module_of(file)
    tools = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    if not tools:
        raise ToolsNotLoaded(f"{path} has no tool: put @tool above a function")
    return unique(tools.values())


def unique(tools: Iterable[Tool[..., Any]]) -> list[Tool[..., Any]]:
    """Return tools sorted by name. Raises ToolsNotLoaded when two have the same name."""
    named: dict[str, Tool[..., Any]] = {}
    for tool in tools:
        if named.setdefault(tool.name, tool) is not tool:
            raise ToolsNotLoaded(f"two tools are called {tool.name!r}: give one of them another name")
    return [named[name] for name in sorted(named)]


def remarks(tools: Iterable[Tool[..., Any]]) -> list[str]:
    """Return what a model cannot know of tools, each with the file and line to mend."""
    found = []
    for tool in tools:
        code = inspect.unwrap(tool).__code__
        where = f"{code.co_filename}:{code.co_firstlineno}: {tool.name}"
        if not tool.spec.description.strip():
            found.append(f"{where} has no description for the model: give it a docstring, or desc=…")
        properties = tool.spec.input_schema.get("properties", {})
        if untyped := [name for name, part in properties.items() if not part.keys() - {"title", "default"}]:
            found.append(f"{where}: the model does not know what to pass as {', '.join(untyped)}: annotate its type")
    return found


def _refuse_shadows(file: Path) -> None:
    """The file's folder comes first on the path: a module in it would be imported instead of ours of that name."""
    own = Path(__file__).resolve().parents[2]
    for name in sorted(_NEEDED_PACKAGES):
        for candidate in (file.parent / f"{name}.py", file.parent / name):
            # A folder without Python files is not imported.
            is_package = candidate.is_dir() and any(candidate.glob("*.py"))
            if (candidate.is_file() or is_package) and candidate.parent != own:
                remedy = "rename it, or serve a file from another folder"
                raise ToolsNotLoaded(f"{candidate} would hide Runwire's own package {name!r}: {remedy}")


def _module_of(file: Path) -> ModuleType:
    if str(file.parent) not in sys.path:
        sys.path.insert(len(_FOLDERS), str(file.parent))
        _FOLDERS.append(str(file.parent))
    name = file.stem
    found = importlib.util.find_spec(name) if name.isidentifier() and name not in sys.modules else None
    if found is None or found.origin != str(file):
        name = f"runwire_served_{name}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ToolsNotLoaded(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Annotations are looked up in the module by its name, so it must be there while the file runs.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        del sys.modules[name]
        raise ToolsNotLoaded(f"{file} ended with sys.exit({error.code!r}) while it was loaded") from error
    except BaseException:
        del sys.modules[name]
        raise
    return module
