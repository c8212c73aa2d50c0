"""Announces this instance of tool_runner, counts the others, and divides the `concurrency` of tools among them.

A single instance makes all calls, so stored and direct calls share the whole limit. With several instances, a quarter
of the limit is for direct calls and is divided among the instances. The rest limits the consumer of stored calls.
"""

import asyncio
import time

from nats.aio.msg import Msg
from pydantic import ValidationError

from contracts.tools.direct import RunnerAnnouncement
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from contracts.wire.ids import new_id
from services.messaging.connection import Bus
from services.messaging.nats_connection import Subscription
from services.runtime.tasks import cancelled

_ANNOUNCE_EVERY_S = 1.0
_MAX_SILENCE_S = 3.5
"""An instance that has not announced itself for so long is gone."""


class Runners:
    """The instances of tool_runner."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.instance = new_id()
        """The id of this instance."""
        self._others: dict[str, float] = {}
        """Other instances, and when each announced itself."""
        self._subscription: Subscription | None = None
        self._announcing: asyncio.Task[None] | None = None

    async def start(self) -> "Runners":
        """Announce this instance every second. After the first second it takes direct calls."""
        self._subscription = await self._bus.subscribe(subjects.runner(), self._on_announcement)
        self._announcing = self._bus.tasks.keep("runner_announcements", self._announce_for_ever())
        return self

    async def stop(self) -> None:
        """Announce that this instance takes no more calls."""
        await cancelled(self._announcing)
        await self._announce(leaving=True)
        if self._subscription is not None:
            await self._subscription.stop()

    @property
    def count(self) -> int:
        """How many instances there are."""
        oldest = time.monotonic() - _MAX_SILENCE_S
        self._others = {instance: at for instance, at in self._others.items() if at >= oldest}
        return 1 + len(self._others)

    def stored_limit(self, spec: ToolSpec) -> int:
        """How many stored calls of a tool all instances together make at once."""
        return spec.concurrency if self.count == 1 else spec.concurrency - spec.concurrency // 4

    def direct_limit(self, spec: ToolSpec) -> int:
        """How many direct calls of a tool this instance makes at once.

        With several instances, an unfinished call may be continued by another one. That one finds it only if the tool
        answers `status`, as tools with a heartbeat interval do.
        """
        if (count := self.count) == 1:
            return spec.concurrency
        return 0 if spec.heartbeat_s is None else spec.concurrency // 4 // count

    async def _announce_for_ever(self) -> None:
        # Other instances count this one before it takes calls.
        await self._announce(leaving=True)
        while True:
            await asyncio.sleep(_ANNOUNCE_EVERY_S)
            await self._announce(leaving=False)

    async def _announce(self, *, leaving: bool) -> None:
        announcement = RunnerAnnouncement(instance=self.instance, leaving=leaving)
        await self._bus.send(subjects.runner(), announcement.model_dump_json().encode())

    async def _on_announcement(self, message: Msg) -> None:
        try:
            announced = RunnerAnnouncement.model_validate_json(message.data)
        except ValidationError:
            return
        if announced.instance != self.instance:
            self._others[announced.instance] = time.monotonic()
