"""How many calls of a tool run at once: in this process, and of its `concurrency` among the instances of tool_runner.

A single instance makes all calls, so stored and direct calls share the whole limit. With several instances, a quarter
of the limit is for direct calls and is divided among the instances. The rest limits the consumer of stored calls.
"""

import asyncio
import time

from nats.aio.msg import Msg

from contracts.tools.messages import RunnerAnnouncement, ToolSpec
from contracts.wire import subjects
from contracts.wire.base import parsed
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.fairness import FairSemaphore
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
        self._subscription: Subscription
        self._announcing: asyncio.Task[None] | None = None

    async def start(self) -> "Runners":
        """Announce this instance every second. After the first second it takes direct calls."""

        async def on_announcement(message: Msg) -> None:
            announced = parsed(RunnerAnnouncement, message.data)
            if announced is not None and announced.instance != self.instance:
                self._others[announced.instance] = time.monotonic()

        self._subscription = await self._bus.subscribe(subjects.runner(), on_announcement)

        async def announce_for_ever() -> None:
            # Other instances count this one before it takes calls.
            await self._announce(leaving=True)
            while True:
                await asyncio.sleep(_ANNOUNCE_EVERY_S)
                await self._announce(leaving=False)

        self._announcing = self._bus.tasks.keep("runner_announcements", announce_for_ever)
        return self

    async def stop(self) -> None:
        """Announce that this instance takes no more calls."""
        await cancelled(self._announcing)
        await self._announce(leaving=True)
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

    async def _announce(self, *, leaving: bool) -> None:
        announcement = RunnerAnnouncement(instance=self.instance, leaving=leaving)
        await self._bus.send(subjects.runner(), announcement.model_dump_json().encode())


class Concurrency:
    """Permits for the calls of each tool that this process makes, over both paths.

    Stored calls wait for a permit; direct calls are declined without one.
    """

    def __init__(self) -> None:
        self._all: FairSemaphore[str] = FairSemaphore()
        self._direct: FairSemaphore[str] = FairSemaphore()

    def take_directly(self, tool: str, limit: int, direct_limit: int) -> bool:
        """Take a permit for a direct call, if one is free and no stored call waits for it."""
        if not self._direct.take_now(tool, direct_limit):
            return False
        if self._all.take_now(tool, limit):
            return True
        self._direct.give_back(tool)
        return False

    async def take(self, tool: str, limit: int) -> None:
        """Take a permit for a stored call, in the order of arrival."""
        if not self._all.take_now(tool, limit):
            await self._all.wait(tool)

    def give_back(self, tool: str, *, direct: bool = False) -> None:
        """Give a permit back, or pass it on to the stored call that waits longest."""
        if direct:
            self._direct.give_back(tool)
        self._all.give_back(tool)
