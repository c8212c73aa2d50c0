"""Run the tool runner: `python -m services.tool_runner`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.runtime.bus import Bus
from services.runtime.catalogue import Catalogue
from services.runtime.health import Health
from services.runtime.service import Broker, run_service
from services.runtime.settings import read_settings

from .announcements import Announced, read_tools_file
from .catalogue import Discovery
from .dispatch import Dispatcher
from .handlers import ToolRunner
from .lanes import Lanes
from .settings import ToolRunnerSettings


@asynccontextmanager
async def running(bus: Bus, settings: ToolRunnerSettings, declared: list[Announced]) -> AsyncIterator[Discovery]:
    """Take calls and keep the catalogue, over a connection that is there and provisioned."""
    catalogue = await Catalogue(bus).start()
    dispatcher = await Dispatcher(bus, settings).start()
    runner = ToolRunner(bus, settings, catalogue, dispatcher)
    lanes = await Lanes(bus, runner.on_call, settings.tool_slots).start()
    discovery = await Discovery(bus, settings, lambda announced: lanes.open(announced.spec), declared).start()
    try:
        yield discovery
    finally:
        await discovery.stop()
        await lanes.stop(settings.graceful_timeout_s)
        await catalogue.stop()


@asynccontextmanager
async def work(bus: Bus, _broker: Broker, health: Health) -> AsyncIterator[None]:
    """Work until told to stop."""
    settings = ToolRunnerSettings()
    declared = read_tools_file(settings.tools_file) if settings.tools_file is not None else []
    async with running(bus, settings, declared) as discovery:
        health.checks["catalogue"] = discovery.problem
        yield


if __name__ == "__main__":
    run_service("tool_runner", read_settings(ToolRunnerSettings), work)
