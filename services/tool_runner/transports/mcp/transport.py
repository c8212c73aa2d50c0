"""Tools over MCP: the calls of all servers of the file, behind the machine of `calls`.

Rule 1: a call is begun by one request. It is sent again only where the machine says so: the server certainly did not
carry it out, or its connection was lost and the tool is idempotent.
Rule 2: no other instance of tool_runner can answer for a call, since each has its own connections. So a call that is
taken over is settled as unknown, or repeated if it may be.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import closing
from itertools import islice

import structlog
from mcp.shared.exceptions import MCPError

from contracts.artifacts import BytesGiven
from contracts.tools.messages import CallQuestion, Progress, ResultRejected, ToolCall, ToolFailure, ToolSpec
from contracts.wire.names import unix_ms
from services.messaging.connection import Bus
from services.runtime.tasks import cancelled, code_locations
from services.tool_runner.calls import events
from services.tool_runner.discovery.announcements import Announcement
from services.tool_runner.transports.base import EventQueue

from .config import McpServer
from .results import events_of, params_of
from .server import ConnectionLost, NotDone, ServerLink
from .streams import REFUSED

logger = structlog.get_logger(__name__)

_MAX_REFUSED = 50
for _name in ("mcp", "client", "httpx2", "httpcore2"):  # They quote what servers send.
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class McpTransport:
    """Reaches every tool whose specification came from a server of the file, and announces what they list."""

    def __init__(self, bus: Bus, servers: Sequence[McpServer], changed: asyncio.Event) -> None:
        self._bus = bus
        self.links = [ServerLink(server, changed) for server in servers]
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start to connect; nobody waits for it."""
        self._running = [self._bus.tasks.keep(f"mcp_{link.server.name}", link.run) for link in self.links]

    async def stop(self) -> None:
        """End the connections, and the processes that were started."""
        await cancelled(*self._running)

    def announcements(self) -> list[Announcement]:
        """Return the tools of all servers; of two with one name that of the first server."""
        found: dict[str, Announcement] = {}
        for link in self.links:
            for name in sorted(link.offered if link.is_announced else ()):
                found.setdefault(name, link.tools[name][1])
        return [*found.values()]

    def refused(self) -> dict[str, str]:
        """Return what is wrong with tools, and as `mcp-<server>` with servers."""
        found: dict[str, str] = {}
        for link in self.links:
            found |= dict(islice(link.refused.items(), _MAX_REFUSED))
            if (problem := link.problem()) is not None:
                found[f"mcp-{link.server.name}"] = f"MCP server {link.server.name}: {problem}"
        return found

    def ended(self) -> set[str]:
        """None: a server that is away may come back, so its tools are withdrawn a while later."""
        return set()

    async def tell_offered(self, tool: str, instance: str) -> None:
        """Servers are told nothing."""

    def problem(self) -> str | None:
        """Return why a server that is required is away; None if all are there."""
        away = [link for link in self.links if link.server.required and link.session is None]
        return "; ".join(f"MCP server {link.server.name}: {link.problem()}" for link in away) or None

    @property
    def connected_since(self) -> float | None:
        """Always: a lost connection is reported to each of its calls, so silence is never due to a reconnect."""
        return -math.inf

    def serves(self, spec: ToolSpec) -> bool:
        """Whether the tool is of one of these servers, by its tag: a tool elsewhere may have the same name."""
        return any(link.server.tag in spec.tags for link in self.links)

    def connect(self, spec: ToolSpec, queue: EventQueue) -> "closing[McpConnection]":
        """Put the replies to one call into its queue until the context ends."""
        return closing(McpConnection(next(link for link in self.links if link.server.tag in spec.tags), spec, queue))

    async def reject(self, tool: str, rejected: ResultRejected) -> None:
        """Write it to the log: servers take no complaints."""
        logger.warning("mcp_result_rejected", tool=tool, code=rejected.code, reason=rejected.reason)


class McpConnection:
    """One call's way to its server."""

    def __init__(self, link: ServerLink, spec: ToolSpec, queue: EventQueue) -> None:
        self._link, self._spec, self._queue = link, spec, queue
        self._calling: list[asyncio.Task[None]] = []
        self._reached = -math.inf

    async def send(self, request: int, call: ToolCall) -> bool:
        """Send the call. Without a connection nobody responds."""
        self._calling.append(asyncio.create_task(self._call(request, call)))
        return True

    async def ask_status(self, request: int, _question: CallQuestion) -> None:
        """Nobody answers: a silent server is missed after `timeout_s`, and a lost connection is told by itself."""
        self._queue.put(events.NoResponders(request))

    async def ping(self, request: int, instance: str) -> None:
        """There are no instances."""

    async def give(self, given: BytesGiven, data: bytes) -> None:
        """Servers ask for no bytes."""

    async def cancel(self, _question: CallQuestion) -> None:
        """Tell the server that the call is cancelled, in the way of its era."""
        self.close()

    def close(self) -> None:
        """Cancel what still runs."""
        for calling in self._calling:
            calling.cancel()

    async def _call(self, request: int, call: ToolCall) -> None:
        session = await self._link.opened()
        tool = self._link.tools.get(self._spec.name)
        is_late = call.start_by is not None and unix_ms() > call.start_by  # This process was stopped meanwhile.
        if session is None or tool is None or is_late:
            self._queue.put(events.NoResponders(request))
            return

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if progress > self._reached:  # A smaller value is no progress.
                self._reached = progress
                fraction = min(1.0, max(0.0, progress / total)) if total else None
                data = Progress(message=(message or "")[:2000], fraction=fraction).model_dump_json().encode()
                self._queue.put(events.Progress(data), len(data))

        try:
            result = await session.call(tool[0], params_of(call), report)
            for event in events_of(request, call, self._link.server, self._spec, result):
                self._queue.put(event, len(getattr(event, "data", b"")))
        except NotDone:
            self._link.reset(session)
            self._queue.put(events.NoResponders(request))
        except ConnectionLost:
            if self._link.server.command is not None:  # Over HTTP others may go on.
                self._link.reset(session)
            self._queue.put(events.Lost(request))
        except MCPError as error:
            reason = error.message[:2000] or f"it answered with the error {error.code}"
            code = "result_too_large" if error.code == REFUSED and "bytes" in reason else "tool_error"
            self._queue.put(events.Failure(ToolFailure(reason=reason, code=code)))
        except Exception as error:  # noqa: BLE001, whatever a server sends, its call ends
            logger.error("mcp_call_failed", error=type(error).__name__, places=code_locations(error))  # noqa: TRY400
            self._queue.put(events.Failure(ToolFailure(reason="the answer of the server cannot be read")))
