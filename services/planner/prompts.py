"""Renders the prompts of model calls again, from the logs of their runs, for people who look inside a run.

Rule 1: a run is folded up to the record that asks, apart from the runs in work, and rendered by the code that asks
models. Nothing is written, and no model is asked.
Rule 2: one prompt at a time, since folding and rendering a long run holds up this process.
"""

import asyncio

from nats.aio.msg import Msg

from contracts.runs.inbox import Prompt, PromptRendered, PromptRequested
from contracts.wire import subjects
from contracts.wire.base import parsed
from contracts.wire.records import VERSION_HEADER
from services.messaging.connection import Answerer, Bus
from services.planner.conversation.encoding import merged
from services.planner.effects.model_requests import ModelRequests
from services.planner.logs.ownership_watch import Address
from services.planner.logs.run_log import RunLogs
from services.runtime.health import VERSION

MAX_WAITING = 16
"""Requests of one planner that wait; further ones are not answered, and are asked again."""


class Prompts(Answerer):
    """The requests that this planner answers."""

    def __init__(self, bus: Bus, logs: RunLogs, requests: ModelRequests) -> None:
        super().__init__(bus, subjects.prompt, subjects.prompt.writes)
        self._logs = logs
        self._requests = requests
        self._lock = asyncio.Lock()

    async def answer(self, message: Msg) -> None:
        """Render a prompt, and send it."""
        if len(self._answering) > MAX_WAITING:
            return
        if (asked := parsed(PromptRequested, message.data)) is None:
            return  # Not from a service of this version; it stops waiting.
        async with self._lock:
            prompt = await self.rendered(asked)
        answer = PromptRendered(prompt=prompt, problem=None if prompt else "no_such_call")
        reply = answer.model_dump_json().encode()
        if len(reply) > self._bus.nc.max_payload:
            reply = PromptRendered(problem="too_large").model_dump_json().encode()
        await self._bus.send(message.reply, reply)

    async def rendered(self, wanted: PromptRequested) -> Prompt | None:
        """Return a prompt; None if the log has no such model call."""
        address, place = Address(wanted.tenant, wanted.run_id), (wanted.turn, wanted.part, wanted.attempt)
        found = await self._logs.as_asked(address, place)
        if found is None or found.run.started is None:
            return None
        request = await self._requests.rendered(found.run, found.run.started)
        return Prompt(
            model=request.model,
            messages=[each for each in merged(request.messages.objects()) if isinstance(each, dict)],
            tools=request.tools,
            tool_choice=request.tool_choice,
            response_format=request.response_format,
            reasoning_effort=request.reasoning_effort,
            tokens=request.messages.tokens,
            rendered_by=VERSION,
            asked_by=(found.headers or {}).get(VERSION_HEADER, ""),
        )
