"""Compose the tool runner; nothing connects here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.messaging.connection import Bus
from services.runtime.health import Health
from services.shared.tools.builtin import READ_ARTIFACT, READ_ARTIFACT_SPEC
from services.shared.tools.catalogue import Catalogue
from services.tool_runner.transports.nats.tools import NatsTools

from .call_consumers import CallConsumers
from .compliance.checks import ToolChecks
from .direct_calls import DirectCalls
from .discovery.announcements import Announcement
from .discovery.catalogue_writer import CatalogueWriter
from .discovery.micro import MicroDiscovery
from .execution import CallExecutor
from .handlers import CallHandler
from .limits.runners import Runners
from .settings import ToolRunnerSettings


@asynccontextmanager
async def running(
    bus: Bus, settings: ToolRunnerSettings, declared: list[Announcement], health: Health | None = None
) -> AsyncIterator[None]:
    """Process calls and maintain the catalogue, over a connection that is provisioned. `declared`: the tools file."""
    catalogue = await Catalogue(bus).start()
    tools = await NatsTools(bus, settings).start()
    runners = Runners(bus)
    executor = CallExecutor(bus, settings, catalogue, tools, runners)
    direct_calls = await DirectCalls(bus, executor, runners.instance).start()
    await runners.start()
    handler = CallHandler(bus, executor, direct_calls, settings.max_deliveries)
    builtin = {READ_ARTIFACT: READ_ARTIFACT_SPEC}
    consumers = await CallConsumers(bus, handler.on_call, settings, lambda: builtin | catalogue.live(), runners).start()
    discovery = await MicroDiscovery(bus, settings.discover_s).start()
    await consumers.open_surely(READ_ARTIFACT_SPEC)
    writer = await CatalogueWriter(
        bus,
        discovery,
        declared,
        lambda announced: consumers.open(announced.spec),
        trust_tools=settings.trust_tools,
    ).start()
    checks = await ToolChecks(bus, lambda: [*declared, *discovery.announcements()], catalogue, tools).start()
    if health is not None:
        health.checks["catalogue"] = writer.problem
    try:
        yield
    finally:
        await runners.stop()
        await checks.stop()
        await direct_calls.stop()
        await writer.stop()
        await discovery.stop()
        await consumers.stop(settings.graceful_timeout_s)
        await catalogue.stop()
