"""Calls of tools that change nothing, for no run: what the gateway answers with, and what pages show."""

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ReadRequested
from contracts.wire import subjects
from services.messaging.connection import Bus

READ_WAIT_S = 12.0
"""A little longer than a tool runner gives a tool."""


async def read(bus: Bus, asked: ReadRequested, wait_s: float = READ_WAIT_S) -> CallFinished:
    """Return what came of a call. Raises Unavailable if no tool runner answers."""
    message = await bus.request(subjects.tool_read(), asked.model_dump_json().encode(), wait_s)
    return CallFinished.model_validate_json(message.data)
