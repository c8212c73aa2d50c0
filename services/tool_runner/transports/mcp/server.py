"""One server of the file: its connection, which is opened again with back-off, its tools, and a session with it.

Rule 1: a server that does not start, dies or hangs is its own problem: nothing else waits for it.
Rule 2: notifications that the list of tools has changed are collected, however many there are.
Rule 3: what is known of its tools stays for calls that runs have pinned, and is announced while the server is there or
was a moment ago.
Rule 4: a session is of either era of the protocol: 2026-07-28 without a handshake, and those before it. Answers are
read as they come, not by the SDK's models: one odd tool or one unknown kind of content would cost a whole list or
result.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import anyio
import anyio.abc
import mcp_types as types
import structlog
from mcp.shared import inbound
from mcp.shared.dispatcher import CallOptions, DispatchContext, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

from services.runtime.tasks import code_locations
from services.shared.tools.builtin import model_name
from services.tool_runner.discovery.announcements import Announcement, checked, short_reason

from .config import McpServer, matches
from .results import spec_of
from .streams import CONNECTION_LOST, LOST, NOT_DONE, REFUSED, Notes, streams_of

logger = structlog.get_logger(__name__)

_CLIENT = {"name": "runwire", "version": "0.1.0"}
_META = {types.CLIENT_INFO_META_KEY: _CLIENT, types.CLIENT_CAPABILITIES_META_KEY: {"elicitation": {"form": {}}}}
_DISCOVER_S, _LIST_S = 10.0, 30.0
_MAX_PAGES, MAX_TOOLS = 100, 512
_ENDED = ("Connection closed", "SSE stream ended", "SSE stream failed")
"""How the SDK begins the text of an error that is none of the server's."""
Tools = dict[str, tuple[str, Announcement]]
"""By the names that models see: the server's own name of each, and what is announced."""
_START_S = 60.0
"""Until its tools are known: a launcher may have to download it first."""
_PATIENCE_S = 20.0
"""How long a call waits for a connection that is being opened."""
_MIN_PAUSE_S, _MAX_PAUSE_S, _STEADY_S = 0.5, 60.0, 30.0
_RELIST_S, _MIN_RELIST_S = 300.0, 1.0
_ANNOUNCED_S = 30.0
"""How long the tools of a server are announced that is away."""
_MAX_PROBLEMS = 5
_MAX_NAMES, _MAX_DIGESTS = 2 * MAX_TOOLS, 8
"""Tools of one server, and specifications of one tool, while this process lives: each is kept for runs."""


class NotDone(Exception):
    """The request was certainly not carried out; the text says why."""


class ConnectionLost(Exception):
    """The request may have been carried out, and no answer will come."""


class Session:
    """Requests to a server. `version`: of the protocol, once it is negotiated. `expect`: called before each request."""

    def __init__(self, dispatcher: JSONRPCDispatcher, expect: Callable[[], None]) -> None:
        self._dispatcher, self._expect = dispatcher, expect
        self.version = ""
        self._header_maps: dict[str, dict[tuple[str, ...], str]] = {}

    async def open(self, *, is_old: bool) -> None:
        """Find out the era, and shake hands where it needs that. `is_old`: the server has shown that it is not new.

        Raises MCPError, NotDone and ConnectionLost.
        """
        if not is_old and await self._discover():
            return
        self.version = ""
        params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": _CLIENT}
        try:
            version = (await self.request("initialize", params, cancel_on_abandon=False)).get("protocolVersion")
        except MCPError as error:
            # It was slow to start, and has taken the first question, of which the answer came too late.
            if error.code == types.UNSUPPORTED_PROTOCOL_VERSION and await self._discover():
                return
            raise
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise NotDone(f"it speaks the version {str(version)[:40]} of the protocol, which is not known here")
        self.version = version
        await self._dispatcher.notify("notifications/initialized", None, {"headers": self._headers("")})

    async def _discover(self) -> bool:
        """Return whether the server speaks the newest version."""
        self.version = newest = MODERN_PROTOCOL_VERSIONS[-1]
        try:
            found = await self.request("server/discover", {}, timeout=_DISCOVER_S, cancel_on_abandon=False)
        except MCPError as error:
            logger.debug("mcp_server_has_no_discovery", code=error.code)
            return False
        return newest in (found.get("supportedVersions") or ())

    async def tools(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the tools of all pages as they came, each once, and what is odd about the list.

        A cursor that comes again, or is empty, ends it.
        """
        found: dict[str, dict[str, Any]] = {}
        problems: list[str] = []
        cursors: set[str] = set()
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self.request("tools/list", {"cursor": cursor} if cursor else {}, timeout=_LIST_S)
            for tool in page.get("tools") or ():
                name = tool.get("name") if isinstance(tool, dict) else None
                if not isinstance(name, str) or not name:
                    problems.append("a tool without a name is left out")
                elif name in found:
                    problems += [f"{name[:64]} is listed twice: the first one counts"] * (found[name] != tool)
                elif len(found) < MAX_TOOLS:
                    found[name] = tool
                else:
                    problems.append(f"it lists more than {MAX_TOOLS} tools: name those that you need under `tools`")
                    return [*found.values()], problems
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or cursor in cursors:
                problems += ["its list repeats a cursor, and ends there"] if cursor in cursors else []
                break
            cursors.add(cursor)
        self._header_maps = {name: inbound.x_mcp_header_map(tool.get("inputSchema")) for name, tool in found.items()}
        return [*found.values()], problems

    async def call(self, tool: str, params: dict[str, Any], report: ProgressFnT) -> dict[str, Any]:
        """Call a tool and return the result as it came. Raises MCPError, NotDone and ConnectionLost."""
        headers = {inbound.MCP_NAME_HEADER: inbound.encode_header_value(tool)}
        headers |= inbound.mcp_param_headers(self._header_maps.get(tool, {}), params["arguments"])
        return await self.request("tools/call", {"name": tool, **params}, headers=headers, on_progress=report)

    async def request(self, method: str, params: dict[str, Any], **options: Unpack[CallOptions]) -> dict[str, Any]:
        """Send a request and return its result. Raises MCPError, NotDone and ConnectionLost."""
        headers = self._headers(method)
        if self._is_new:
            headers |= options.get("headers", {})
            params = {**params, "_meta": {**_META, types.PROTOCOL_VERSION_META_KEY: self.version}}
        options["headers"] = headers
        self._expect()
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            if error.code == NOT_DONE:
                raise NotDone(error.message) from error
            is_lost = error.code == LOST or (error.code == types.PARSE_ERROR and CONNECTION_LOST in error.message)
            if is_lost or (error.code == types.CONNECTION_CLOSED and error.message.startswith(_ENDED)):
                raise ConnectionLost(error.message) from error
            if error.code == types.PARSE_ERROR:  # What the SDK says of an answer quotes it.
                raise MCPError(REFUSED, error.message.partition(" [type=")[0]) from None
            raise

    @property
    def _is_new(self) -> bool:
        return self.version in MODERN_PROTOCOL_VERSIONS

    def _headers(self, method: str) -> dict[str, str]:
        headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: self.version} if self.version else {}
        return headers | ({inbound.MCP_METHOD_HEADER: method} if self._is_new else {})


async def answer(_context: Any, method: str, _params: Any) -> dict[str, Any]:
    """Answer a request of a server. It gets no model, no folders, and asks nobody while it holds a connection."""
    if method == "ping":
        return {}
    raise MCPError(code=types.METHOD_NOT_FOUND, message=f"{method[:100]} is not offered")


class ServerLink:
    """The connection to one server. `changed` is set when its tools, or what is wrong with it, have changed."""

    def __init__(self, server: McpServer, changed: asyncio.Event) -> None:
        self.server = server
        self.session: Session | None = None
        self.tools: Tools = {}
        """Also those of earlier lists."""
        self.offered: frozenset[str] = frozenset()
        """Of these the last list."""
        self.refused: dict[str, str] = {}
        """Tool -> why it cannot be offered."""
        self._digests: dict[str, set[str]] = {}
        self._changed = changed
        self._problem: str | None = "it is starting"
        self._problems: list[str] = []
        self._notes = Notes()
        self._seen_at = -_ANNOUNCED_S
        self._is_old = False
        """It has ended when it was asked in the way of the newest era."""
        self._outdated, self._opened, self._wanted = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._scope: anyio.CancelScope

    @property
    def is_announced(self) -> bool:
        """Whether its tools are."""
        return self.session is not None or time.monotonic() - self._seen_at < _ANNOUNCED_S

    def problem(self) -> str | None:
        """Return what is wrong with the server, in a sentence; None: nothing."""
        found = [self._problem] if self._problem is not None else self._problems[:_MAX_PROBLEMS]
        if self._notes.skipped:
            found = [*found, f"{self._notes.skipped:,} lines of its output are no messages"]
        return "; ".join(found) or None

    async def opened(self) -> Session | None:
        """Return the session; of a connection that is being opened, once it is open. None: there is none now."""
        if self.session is None:
            if self.server.command is None:  # A program is not started more often for it.
                self._wanted.set()
            with anyio.move_on_after(_PATIENCE_S):
                await self._opened.wait()
        return self.session

    def reset(self, session: Session | None) -> None:
        """Open the connection again, since this session is gone."""
        if session is not None and self.session is session:
            self._seen_at, self.session = time.monotonic(), None
            self._opened.clear()
            self._scope.cancel()

    async def run(self) -> None:
        """Keep the connection, until this is cancelled."""
        pause_s = 0.0
        while True:
            began, self._notes = time.monotonic(), Notes()
            try:
                await self._connected()
                reason = "its connection has ended"
            except* Exception as group:  # noqa: BLE001, an odd server must not end the others
                error: BaseException = group
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                reason = f"it took more than {_START_S:.0f} s" if isinstance(error, TimeoutError) else str(error)
                if not isinstance(error, MCPError | NotDone | ConnectionLost | OSError | ValueError):
                    reason = f"it failed in an unexpected way ({type(error).__name__})"
                    places = code_locations(error)
                    logger.error("mcp_server_failed", server=self.server.name, places=places)  # noqa: TRY400
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError  # It was swallowed by the end of the connection in the same moment.
            self.session = None
            reason = "; ".join(filter(None, (reason[:1000], self._notes.end)))
            self._say(f"{reason}; it is tried again")
            logger.warning("mcp_server_lost", server=self.server.name, reason=reason[:200])
            if time.monotonic() - began > _STEADY_S:
                pause_s = 0.0
            if pause_s:
                self._wanted.clear()
                self._opened.set()
                with anyio.move_on_after(pause_s * random.uniform(0.8, 1.2)):  # noqa: S311, a spread and not a secret
                    await asyncio.sleep(_MIN_PAUSE_S)
                    await self._wanted.wait()  # A call needs it: the server may be back.
                self._opened.clear()
            pause_s = min(max(2 * pause_s, _MIN_PAUSE_S), _MAX_PAUSE_S)

    async def _connected(self) -> None:
        """Connect, list the tools, and follow changes until the connection ends."""
        async with streams_of(self.server, self._notes) as (read, write), anyio.create_task_group() as group:
            dispatcher: JSONRPCDispatcher = JSONRPCDispatcher(read, write)
            self._outdated.clear()
            await group.start(self._receive, dispatcher)
            session = Session(dispatcher, read.expect)
            with anyio.fail_after(_START_S):
                try:
                    await session.open(is_old=self._is_old)
                except ConnectionLost:
                    self._is_old = not self._is_old
                    raise
                await self._list(session)
            self.session, self._scope = session, group.cancel_scope
            self._opened.set()
            logger.info(
                "mcp_server_connected", server=self.server.name, version=session.version, tools=len(self.offered)
            )
            while True:
                with anyio.move_on_after(_RELIST_S):
                    await self._outdated.wait()
                self._outdated.clear()
                await self._list(session)
                await asyncio.sleep(_MIN_RELIST_S)

    async def _receive(self, dispatcher: JSONRPCDispatcher, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async def notified(_context: DispatchContext[Any], method: str, _params: Mapping[str, Any] | None) -> None:
            if method == "notifications/tools/list_changed":
                self._outdated.set()

        try:
            await dispatcher.run(answer, notified, task_status=task_status)
        finally:
            self.reset(self.session)
        raise ConnectionLost("its connection has ended")

    async def _list(self, session: Session) -> None:
        listed, self._problems = await session.tools()
        tools, refused = await asyncio.to_thread(_read, self.server, listed)
        self._leave_out(tools, refused)
        self.tools |= tools
        self.offered, self.refused = frozenset(tools), refused
        self._seen_at = time.monotonic()
        self._say(None)

    def _leave_out(self, tools: Tools, refused: dict[str, str]) -> None:
        """Refuse tools that are one too many, or have changed too often."""
        for name, (_, announced) in [*tools.items()]:
            known = self._digests.get(name, set())
            if not known and len(self._digests) >= _MAX_NAMES:
                reason = f"its server has named more than {_MAX_NAMES:,} tools since the tool runner started"
            elif announced.digest not in known and len(known) >= _MAX_DIGESTS:
                reason = f"it has had {_MAX_DIGESTS} specifications since the tool runner started, and changed again"
            else:
                self._digests[name] = known | {announced.digest}
                continue
            del tools[name]
            refused[name] = reason

    def _say(self, problem: str | None) -> None:
        self._problem = problem
        self._changed.set()


def _read(server: McpServer, listed: list[dict[str, Any]]) -> tuple[Tools, dict[str, str]]:
    """Return the tools that can be offered, and why others cannot, by the names that models see."""
    tools: Tools = {}
    refused: dict[str, str] = {}
    for tool in listed:
        if not matches(tool["name"], server.tools):
            continue
        try:
            spec = checked(spec_of(server, tool), of_server=True)
        except (ValueError, TypeError, RecursionError) as error:
            refused[model_name(server.prefix + tool["name"])] = short_reason(error)
        else:
            announced = Announcement(spec, spec.digest(), "", server.name, is_accepted=server.accept == "auto")
            tools[spec.name] = (tool["name"], announced)
    return tools, refused
