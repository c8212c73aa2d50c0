"""One lane per tool: a consumer on CALLS with the tool's own concurrency, and slots of its own, so that no tool waits behind another."""

import asyncio

import structlog
from nats.errors import Error as NatsError

from contracts import subjects
from contracts.tools import ToolSpec
from services.runtime.bus import Bus
from services.runtime.errors import BusError, Unavailable
from services.runtime.puller import Handler, Puller
from services.runtime.streams import consumer, ensure_consumer
from services.runtime.tasks import cancelled

logger = structlog.get_logger(__name__)

_PREFIX = subjects.calls_consumer("x")[:-1]
_LOOK_S = 10.0
_RETRY_S = 0.5


class Lanes:
    """Pulls from the consumer of every tool that ever had calls, whether its copies are there or not: accepted calls get an outcome."""

    def __init__(self, bus: Bus, handler: Handler, slots: int) -> None:
        self._bus = bus
        self._handler = handler
        self._slots = slots
        self._pullers: dict[str, Puller] = {}
        self._lock = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> "Lanes":
        """Take the calls of all tools that have a consumer, and keep looking for new ones."""
        while True:
            try:
                await self._take_existing()
                break
            except Unavailable:
                await asyncio.sleep(_RETRY_S)
        self._looking = self._bus.tasks.keep("lanes", self._look())
        return self

    async def stop(self, grace_s: float) -> None:
        """Take no more calls; others will get what is not done after `grace_s` seconds."""
        await cancelled(self._looking)
        await asyncio.gather(*(puller.stop(grace_s) for puller in self._pullers.values()))

    @property
    def tools(self) -> list[str]:
        """The tools whose calls are taken."""
        return sorted(self._pullers)

    async def open(self, spec: ToolSpec) -> None:
        """Make sure that the tool's calls are taken, as many at once as it says. Raises Misconfigured."""
        config = consumer(subjects.calls_consumer(spec.name), subjects.calls_of(spec.name), self._bus.settings.ack_wait_s, spec.concurrency)
        await ensure_consumer(self._bus, subjects.CALLS, config)
        await self._pull(spec.name)

    async def _pull(self, tool: str) -> None:
        async with self._lock:
            if tool not in self._pullers:
                puller = Puller(self._bus, subjects.CALLS, subjects.calls_consumer(tool), self._handler, self._slots)
                self._pullers[tool] = await puller.start()

    async def _take_existing(self) -> None:
        for name in await self._consumers():
            if name.startswith(_PREFIX):
                await self._pull(subjects.checked_tool(name.removeprefix(_PREFIX)))

    async def _consumers(self) -> list[str]:
        found: list[str] = []
        while True:
            answer = await self._bus.api(f"CONSUMER.NAMES.{subjects.CALLS}", {"offset": len(found)})
            names = answer.get("consumers") or []
            found += names
            if not names or len(found) >= answer.get("total", 0):
                return found

    async def _look(self) -> None:
        """Another tool runner may have opened a lane for a tool that this one never saw."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._take_existing()
            except (BusError, NatsError, ConnectionError, OSError) as error:
                logger.debug("consumers_not_listed", reason=str(error))
