"""What the machine of a call needs of a transport: send, ask, ping, cancel. Replies come as events, into a queue.

A further transport is a class with these methods, a discovery (`discovery.announcements.Discovery`), and a line in
`app.KINDS`.
"""

import asyncio
from collections import deque
from contextlib import AbstractContextManager
from typing import Protocol

from contracts.artifacts import BytesGiven
from contracts.tools.messages import CallQuestion, ResultRejected, ToolCall, ToolSpec
from services.tool_runner.calls import events
from services.tool_runner.calls.events import Event


class EventQueue:
    """The unprocessed events of one call, bounded in bytes: a tool that floods fails only its own call."""

    def __init__(self, max_bytes: int) -> None:
        self._events: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._max_bytes = max_bytes
        self._has_events = asyncio.Event()

    def put(self, event: Event, size: int = 0) -> None:
        """Append an event that holds `size` bytes."""
        if self._bytes + size > self._max_bytes:
            self._events.clear()
            event, size, self._bytes = events.Flood(), 0, 0
        self._events.append((event, size))
        self._bytes += size
        self._has_events.set()

    async def next(self, wait_s: float) -> Event | None:
        """Return the next event, or None after `wait_s` seconds, which may be infinite."""
        if not self._events:
            self._has_events.clear()
            alarm = asyncio.get_running_loop().call_later(wait_s, self._has_events.set)
            try:
                await self._has_events.wait()
            finally:
                alarm.cancel()
            if not self._events:
                return None
        event, size = self._events.popleft()
        self._bytes -= size
        return event


class Connection(Protocol):
    """One call's way to the instances of its tool. `request`: the number that the events of a reply bear."""

    async def send(self, request: int, call: ToolCall) -> bool:
        """Send the call to one instance. False when it was certainly not sent."""

    async def ask_status(self, request: int, question: CallQuestion) -> None:
        """Ask all instances whether one works on the call. The one that does continues to reply, to this request."""

    async def ping(self, request: int, instance: str) -> None:
        """Ask whether an instance is connected. The only event that this leads to is NoResponders."""

    async def give(self, given: BytesGiven, data: bytes) -> None:
        """Send bytes of an artifact to the instance that has asked for them."""

    async def cancel(self, question: CallQuestion) -> None:
        """Tell all instances that the call is cancelled."""


class Transport(Protocol):
    """Reaches the tools of one kind."""

    @property
    def connected_since(self) -> float | None:
        """Since when it has been connected, by the monotonic clock; None: it is not."""

    def serves(self, spec: ToolSpec) -> bool:
        """Whether it is this transport that reaches the tool, by the specification that the run has pinned."""

    def connect(self, spec: ToolSpec, queue: EventQueue) -> AbstractContextManager[Connection]:
        """Return a connection that puts the replies to one call into its queue; later ones are ignored."""

    async def reject(self, tool: str, rejected: ResultRejected) -> None:
        """Report to the tool's instances why a result or pause is not accepted. The one that sent it logs it."""
