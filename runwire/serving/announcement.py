"""Announce a tool as a NATS micro service (ADR-32): `nats micro ls`, `$SRV.PING`, `$SRV.INFO`, `$SRV.STATS`.

The calls themselves are served in `tool_server`, since an endpoint of the micro library takes one call at a time.
"""

import asyncio
import contextlib
import json
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from contracts.tools import messages as wire
from contracts.wire import names, subjects
from runwire.tools import Tool

NATS_ERRORS = (NatsError, OSError)
"""What nats-py and the socket raise. TimeoutError and ConnectionError are OSErrors."""
_MAX_ERROR_CHARACTERS = 200
_MAX_ASKED = 16
"""The newest questions of tool runners that hear of the end; each asks every few seconds."""


@dataclass
class Stats:
    """Counts of a tool's calls in this process; times in nanoseconds."""

    requests: int = 0
    errors: int = 0
    last_error: str = ""
    processing_ns: int = 0
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    def count(self, began_ns: int, error: str | None) -> None:
        """Count one call that began at `began_ns` (perf_counter) and has just ended."""
        self.requests += 1
        self.processing_ns += time.perf_counter_ns() - began_ns
        if error is not None:
            self.errors += 1
            self.last_error = error[:_MAX_ERROR_CHARACTERS]


class Announcement:
    """Answers discovery requests for one tool."""

    def __init__(self, client: Client, tool: Tool[..., Any]) -> None:
        self.stats = Stats()
        self._client = client
        self._tool = tool
        self.instance = names.new_id()
        self._own_ping = subjects.micro_service("PING", tool.name, self.instance)
        self._identity = {"name": tool.name, "id": self.instance, "version": tool.version, "metadata": {}}
        self._subscriptions: list[Subscription] = []
        self._asked: deque[str] = deque(maxlen=_MAX_ASKED)
        """Where tool runners await descriptions of the tool."""
        self.offered = asyncio.Event()
        """Set once a tool runner has asked for this instance: its tool is in the catalogue."""

    async def start(self) -> None:
        """Answer from now on. The tool must already take calls: a tool runner that discovers it may call it at once."""
        for verb, answer in {"PING": self._on_ping, "INFO": self._on_info, "STATS": self._on_stats}.items():
            for path in ((), (self._tool.name,), (self._tool.name, self.instance)):
                subject = subjects.micro_service(verb, *path)
                subscription = await self._client.subscribe(subject, cb=answer)
                # The other one is answered until the connection ends: with it tool_runner asks whether it is there.
                if subject != self._own_ping:
                    self._subscriptions.append(subscription)

    async def stop(self) -> None:
        """Answer no more discovery requests, and tell tool runners: an instance without endpoints has ended."""
        for subscription in self._subscriptions:
            try:
                await subscription.unsubscribe()
            except NATS_ERRORS:
                return  # Disconnected: the server has dropped all subscriptions.
        self._subscriptions.clear()
        ended = json.dumps({**self._description(), "endpoints": []}).encode()
        for subject in self._asked:
            with contextlib.suppress(*NATS_ERRORS):
                await self._client.publish(subject, ended)

    async def _on_ping(self, message: Msg) -> None:
        if message.subject == self._own_ping:
            self.offered.set()
        await self._answer(message, {"type": "io.nats.micro.v1.ping_response", **self._identity})

    async def _on_info(self, message: Msg) -> None:
        if message.reply.startswith(f"answer.{self._tool.name}."):
            self._asked.append(message.reply)
        endpoint = {**self._endpoint(), "metadata": {wire.SPEC_METADATA: self._tool.spec.model_dump_json()}}
        await self._answer(message, {**self._description(), "endpoints": [endpoint]})

    def _description(self) -> dict[str, Any]:
        described = {"description": self._tool.spec.description}
        return {"type": "io.nats.micro.v1.info_response", **self._identity, **described}

    async def _on_stats(self, message: Msg) -> None:
        stats = self.stats
        endpoint = self._endpoint() | {
            "num_requests": stats.requests,
            "num_errors": stats.errors,
            "last_error": stats.last_error,
            "processing_time": stats.processing_ns,
            "average_processing_time": stats.processing_ns // max(stats.requests, 1),
        }
        started = stats.started.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        described = {"type": "io.nats.micro.v1.stats_response", **self._identity, "started": started}
        await self._answer(message, {**described, "endpoints": [endpoint]})

    async def _answer(self, message: Msg, described: dict[str, Any]) -> None:
        if message.reply:
            with contextlib.suppress(*NATS_ERRORS):  # Disconnected: the client repeats its request.
                await self._client.publish(message.reply, json.dumps(described).encode())

    def _endpoint(self) -> dict[str, Any]:
        return {"name": self._tool.name, "subject": subjects.tool(self._tool.name), "queue_group": self._tool.name}
