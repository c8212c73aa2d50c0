"""One session with a server, of either era of the protocol: 2026-07-28 without a handshake, and those before it.

Answers are read here as they come, not by the SDK's models: one odd tool or one unknown kind of content would cost a
whole list or result.
"""

from collections.abc import Callable
from typing import Any, Unpack

import mcp_types as types
import structlog
from mcp.shared import inbound
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

from .streams import CONNECTION_LOST, LOST, NOT_DONE, REFUSED

logger = structlog.get_logger(__name__)

_CLIENT = {"name": "runwire", "version": "0.1.0"}
_META = {types.CLIENT_INFO_META_KEY: _CLIENT, types.CLIENT_CAPABILITIES_META_KEY: {"elicitation": {"form": {}}}}
_DISCOVER_S, _LIST_S = 10.0, 30.0
_MAX_PAGES, MAX_TOOLS = 100, 512
_ENDED = ("Connection closed", "SSE stream ended", "SSE stream failed")
"""How the SDK begins the text of an error that is none of the server's."""


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
