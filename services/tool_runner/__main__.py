"""Run the tool runner: `python -m services.tool_runner`."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.messaging.connection import Bus
from services.messaging.nats_link import Broker, run_on_nats
from services.runtime.health import Health
from services.runtime.settings import read_settings
from services.shared.builtin_tools import READ_ARTIFACT, READ_ARTIFACT_SPEC
from services.shared.tool_catalogue import Catalogue
from services.tool_runner.call_consumers import CallConsumers
from services.tool_runner.discovery import Discovery
from services.tool_runner.run_watch import RunWatches
from services.tool_runner.tool_specs import Announcement, InvalidToolsFile, read_tools_file
from services.tool_runner.transports.nats import NatsTools

from .handlers import ToolRunner
from .settings import ToolRunnerSettings


@asynccontextmanager
async def running(bus: Bus, settings: ToolRunnerSettings, declared: list[Announcement]) -> AsyncIterator[Discovery]:
    """Process calls and maintain the catalogue, over a connection that is provisioned."""
    catalogue = await Catalogue(bus).start()
    run_watches = RunWatches(bus)
    tools = await NatsTools(bus, settings, run_watches).start()
    runner = ToolRunner(bus, settings, catalogue, tools, run_watches)
    builtin = {READ_ARTIFACT: READ_ARTIFACT_SPEC}
    consumers = await CallConsumers(
        bus, runner.on_call, settings.tool_slots, lambda: builtin | catalogue.live(), settings.gone_tool_s
    ).start()
    await consumers.open_surely(READ_ARTIFACT_SPEC)
    discovery = await Discovery(bus, settings, lambda announced: consumers.open(announced.spec), declared).start()
    try:
        yield discovery
    finally:
        await discovery.stop()
        await consumers.stop(settings.graceful_timeout_s)
        await catalogue.stop()


@asynccontextmanager
async def work(bus: Bus, _broker: Broker, health: Health) -> AsyncIterator[None]:
    """Process calls until the service stops."""
    settings = ToolRunnerSettings()
    async with running(bus, settings, declared_tools(settings)) as discovery:
        health.checks["catalogue"] = discovery.problem
        yield


def declared_tools(settings: ToolRunnerSettings) -> list[Announcement]:
    """Read the tools file. Raises SystemExit with one sentence when it is invalid."""
    try:
        return read_tools_file(settings.tools_file) if settings.tools_file is not None else []
    except InvalidToolsFile as error:
        sys.exit(f"wrong tools file: {error}")


def main() -> None:
    """Run the tool runner. An invalid tools file ends it with one sentence, even without NATS."""
    settings = read_settings(ToolRunnerSettings)
    declared_tools(settings)
    run_on_nats("tool_runner", settings, work)


if __name__ == "__main__":
    main()
