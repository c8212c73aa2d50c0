"""How many calls of a tool run at once, and one consumer on CALLS per tool, so that no tool waits behind another.

A single instance makes all calls, so stored and direct calls share the tool's whole `concurrency`. With several
instances, a quarter of it is for direct calls and is divided among the instances. The rest limits the consumer of
stored calls.

Rule 1: each accepted call gets an outcome, whether its tool runs or not: a tool with pending calls has a consumer.
Rule 2: the consumer of a tool that has been gone for a while is removed, unless calls are pending or in progress.
Several tool runners do this at the same time; Rule 1 restores a consumer that was removed too early.
Rule 3: after a server crash or a full disk a consumer may have lost track of calls: it has none pending and none in
progress, but the stream still holds calls. It is recreated, and delivers them again.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

import structlog
from nats.aio.msg import Msg

from contracts.tools.messages import RunnerAnnouncement, ToolSpec
from contracts.wire import names, subjects
from contracts.wire.base import parsed
from contracts.wire.names import InvalidName, new_id
from services.messaging.connection import Bus
from services.messaging.errors import NOT_FOUND, BusError, Refused
from services.messaging.fairness import FairSemaphore
from services.messaging.nats_connection import Subscription
from services.messaging.pull_consumer import Handler, PullConsumer
from services.messaging.reads import sequence_of
from services.messaging.streams import consumer, ensure_consumer
from services.runtime.tasks import cancelled

from .settings import ToolRunnerSettings

_ANNOUNCE_EVERY_S = 1.0
_MAX_SILENCE_S = 3.5
"""An instance that has not announced itself for so long is gone."""
logger = structlog.get_logger(__name__)
_PREFIX = subjects.calls_consumer("x")[:-1]
_CHECK_INTERVAL_S = 5.0
_CALLS_OF_ONE_TOOL = 256
"""That this process holds at once."""
_STOP_GRACE_S = 1.0
"""Seconds for handlings that have acknowledged their call to finish."""


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


class CallConsumers:
    """Pulls calls from the consumers of all tools that ever had calls, whether their instances run or not."""

    def __init__(
        self,
        bus: Bus,
        handler: Handler,
        settings: ToolRunnerSettings,
        live: Callable[[], dict[str, ToolSpec]],
        runners: Runners,
    ) -> None:
        self._bus = bus
        self._handler = handler
        self._settings = settings
        self._live = live
        self._runners = runners
        self._limits: dict[str, int] = {}
        """Tool -> the limit of its consumer that this process has set."""
        self._gone_since: dict[str, float] = {}
        self._idle_since_call: dict[str, int] = {}
        """Tool -> sequence of its oldest call, if its consumer was idle at the last check."""
        self._pulling: dict[str, PullConsumer] = {}
        self._lock = asyncio.Lock()
        self._checking: asyncio.Task[None] | None = None

    async def start(self) -> "CallConsumers":
        """Take the calls of all tools with a consumer, and keep checking for new ones."""
        for tool in await self._bus.until_answered(self._with_consumer):
            await self._start_pulling(tool)

        async def keep_checking() -> None:
            while True:
                await asyncio.sleep(_CHECK_INTERVAL_S)
                try:
                    await self.reconcile()
                except BusError as error:
                    logger.debug("call_consumers_not_checked", reason=str(error))

        self._checking = self._bus.tasks.keep("call_consumers", keep_checking)
        return self

    async def stop(self, grace_s: float) -> None:
        """Take no more calls. Others get the calls that are not done after `grace_s` seconds."""
        await cancelled(self._checking)
        await asyncio.gather(*(pull.stop(grace_s) for pull in self._pulling.values()))

    async def open(self, spec: ToolSpec) -> None:
        """Ensure that calls of the tool are taken, with the concurrency it declares. Raises Misconfigured."""
        config = consumer(
            subjects.calls_consumer(spec.name),
            subjects.call.pattern(tool=spec.name),
            self._bus.settings.ack_wait_s,
            limit := self._runners.stored_limit(spec),
        )
        await ensure_consumer(self._bus, subjects.CALLS, config)
        self._limits[spec.name] = limit
        await self._start_pulling(spec.name)

    async def _start_pulling(self, tool: str) -> None:
        async with self._lock:
            if tool not in self._pulling:
                pull = PullConsumer(
                    self._bus, subjects.CALLS, subjects.calls_consumer(tool), self._handler, _CALLS_OF_ONE_TOOL
                )
                self._pulling[tool] = await pull.start()

    async def _with_consumer(self) -> set[str]:
        found: list[str] = []
        while True:
            answer = await self._bus.api(f"CONSUMER.NAMES.{subjects.CALLS}", {"offset": len(found)})
            listed = answer.get("consumers") or []
            found += listed
            if not listed or len(found) >= answer.get("total", 0):
                tools = (name.removeprefix(_PREFIX) for name in found if name.startswith(_PREFIX))
                return _tools(tools, names.checked_tool)

    async def reconcile(self) -> None:
        """Create missing consumers, pull from new ones, and remove those of tools that are gone. Raises BusError."""
        live, served = self._live(), await self._with_consumer()
        waiting = _tools(await self._bus.subjects_in(subjects.CALLS, subjects.call.all), subjects.called_tool)
        # Another instance that has come or gone changes the limits.
        outdated = {tool for tool, spec in live.items() if self._limits.get(tool) != self._runners.stored_limit(spec)}
        for tool in (waiting | live.keys()) - served | outdated:
            await self.open(live.get(tool) or ToolSpec(name=tool))
        for tool in served:
            await self._start_pulling(tool)
        for tool in self._pulling.keys() - served - waiting - live.keys():
            await self._stop_pulling(tool)
        for tool in await self._lost_calls(waiting & served):
            logger.warning("calls_redelivered", tool=tool)
            await self._remove(tool)
            await self.open(live.get(tool) or ToolSpec(name=tool))
        now = time.monotonic()
        self._gone_since = {tool: self._gone_since.get(tool, now) for tool in served - live.keys() - waiting}
        for tool in [tool for tool, since in self._gone_since.items() if now - since >= self._settings.gone_tool_s]:
            await self._remove(tool)

    async def _lost_calls(self, tools: set[str]) -> list[str]:
        """Return the tools with calls that their idle consumers did not know at two consecutive checks."""
        reader, known = await self._bus.reader(subjects.CALLS), self._idle_since_call
        self._idle_since_call = {}
        for tool in tools:
            if await self._is_idle(tool):
                page, _ = await reader.page(subjects.call.pattern(tool=tool), 1, 1)
                if page:
                    self._idle_since_call[tool] = sequence_of(page[0])
        return [tool for tool, sequence in self._idle_since_call.items() if known.get(tool) == sequence]

    async def _is_idle(self, tool: str) -> bool:
        state = await self._bus.api(f"CONSUMER.INFO.{subjects.CALLS}.{subjects.calls_consumer(tool)}", {})
        return not (state["num_pending"] or state["num_ack_pending"])

    async def _remove(self, tool: str) -> None:
        try:
            if not await self._is_idle(tool):
                return
            await self._bus.api(f"CONSUMER.DELETE.{subjects.CALLS}.{subjects.calls_consumer(tool)}", {})
        except Refused as error:
            if error.code not in NOT_FOUND:
                raise
        logger.info("call_consumer_removed", tool=tool)
        await self._stop_pulling(tool)

    async def _stop_pulling(self, tool: str) -> None:
        self._limits.pop(tool, None)
        async with self._lock:
            pull = self._pulling.pop(tool, None)
        if pull is not None:
            await pull.stop(_STOP_GRACE_S)


def _tools(names: Iterable[str], read: Callable[[str], str]) -> set[str]:
    """Return the names that a tool can have. Others on the bus may have created other names."""
    found = set()
    for name in names:
        with contextlib.suppress(InvalidName):
            found.add(read(name))
    return found
