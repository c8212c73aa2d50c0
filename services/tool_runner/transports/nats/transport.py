"""Tools over NATS: `tool.<name>` and its relatives, with a reply subject of its own for each request (`answers`)."""

from collections.abc import Iterator
from contextlib import contextmanager

from contracts.tools.messages import CallQuestion, ResultRejected, ToolCall
from contracts.wire import subjects
from services.messaging.connection import Bus
from services.tool_runner.transports.base import EventQueue

from .answers import Answers


class NatsTransport:
    """Reaches every tool that announces itself as a NATS micro service, or that the tools file declares."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._answers = Answers(bus)
        bus.on_reconnect.append(self._answers.on_reconnect)

    @property
    def connected_since(self) -> float | None:
        """Since when the bus has been connected, by the monotonic clock; None: it is not."""
        return self._bus.up_since if self._bus.is_connected else None

    def serves(self, _tool: str) -> bool:
        """Whether this transport reaches the tool: any that no other transport serves."""
        return True

    @contextmanager
    def connect(self, tool: str, queue: EventQueue) -> Iterator["NatsConnection"]:
        """Put the replies to one call into its queue until the context ends."""
        with self._answers.to(queue):
            yield NatsConnection(self._bus, self._answers, tool, queue)

    async def reject(self, tool: str, rejected: ResultRejected) -> None:
        """Report to the tool's instances why a result or pause is not accepted."""
        await self._bus.send(subjects.tool_rejected(tool), rejected.model_dump_json().encode())


class NatsConnection:
    """One call's way to the instances of its tool."""

    def __init__(self, bus: Bus, answers: Answers, tool: str, queue: EventQueue) -> None:
        self._bus, self._answers, self._tool, self._queue = bus, answers, tool, queue

    async def send(self, request: int, call: ToolCall) -> bool:
        """Send the call to one instance. False when it was certainly not sent."""
        body = call.model_dump_json().encode()
        return await self._answers.send(self._tool, subjects.tool(self._tool), body, self._queue, request)

    async def ask_status(self, request: int, question: CallQuestion) -> None:
        """Ask all instances whether one works on the call."""
        body = question.model_dump_json().encode()
        await self._answers.send(self._tool, subjects.tool_status(self._tool), body, self._queue, request)

    async def ping(self, request: int, instance: str) -> None:
        """Ask whether an instance is connected to NATS."""
        subject = subjects.discover_ping(self._tool, instance)
        await self._answers.send(self._tool, subject, b"", self._queue, request, is_ping=True)

    async def cancel(self, question: CallQuestion) -> None:
        """Tell all instances that the call is cancelled."""
        await self._bus.send(subjects.tool_cancel(self._tool), question.model_dump_json().encode())
