"""Compose the tool runner; nothing connects here."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from services.messaging.connection import Bus
from services.runtime.health import Health
from services.shared.tools.builtin import READ_ARTIFACT, READ_ARTIFACT_SPEC
from services.shared.tools.catalogue import Catalogue

from .call_consumers import CallConsumers, Runners
from .checks import ToolChecks
from .discovery.announcements import Announcement, Discovery
from .discovery.catalogue_writer import CatalogueWriter
from .discovery.file import DeclaredTools
from .discovery.micro import MicroDiscovery
from .execution import CallExecutor
from .handlers import CallHandler, DirectCalls, ToolReads
from .settings import ToolRunnerSettings
from .transports.base import Transport
from .transports.driver import ToolCaller
from .transports.mcp.config import McpServer
from .transports.nats import NatsTransport


class Kind(NamedTuple):
    """One way to reach tools."""

    transport: Transport
    discovery: Discovery


def nats_kind(bus: Bus, settings: ToolRunnerSettings, changed: asyncio.Event) -> Kind:
    """Tools as NATS micro services."""
    return Kind(NatsTransport(bus), MicroDiscovery(bus, settings.discover_s, changed))


def mcp_kind(bus: Bus, servers: Sequence[McpServer], changed: asyncio.Event, health: Health | None) -> Kind:
    """Tools of MCP servers. Their library takes a second to import, so it is only where there are any."""
    from .transports.mcp.transport import McpTransport  # noqa: PLC0415, see above

    transport = McpTransport(bus, servers, changed)
    if health is not None:
        health.checks["mcp"] = transport.problem
    return Kind(transport, transport)


KINDS: list[Callable[[Bus, ToolRunnerSettings, asyncio.Event], Kind]] = [nats_kind]
"""How tools are reached, one line each; of several kinds that serve a tool the first one counts. The event: set when
there is a new announcement."""


@asynccontextmanager
async def running(
    bus: Bus,
    settings: ToolRunnerSettings,
    declared: list[Announcement],
    health: Health | None = None,
    servers: Sequence[McpServer] = (),
) -> AsyncIterator[None]:
    """Process calls and maintain the catalogue, over a connection that is provisioned.

    `declared`: the tools file. `servers`: the file of MCP servers.
    """
    catalogue = await Catalogue(bus).start()
    changed = asyncio.Event()
    kinds = [mcp_kind(bus, servers, changed, health)] if servers else []
    kinds += [kind(bus, settings, changed) for kind in KINDS]
    tools = ToolCaller(bus, settings, [kind.transport for kind in kinds])
    runners = Runners(bus)
    executor = CallExecutor(bus, settings, catalogue, tools, runners)
    direct_calls = await DirectCalls(bus, executor, runners.instance).start()
    reads = await ToolReads(bus, executor).start()
    await runners.start()
    handler = CallHandler(bus, executor, direct_calls, settings.max_deliveries)
    builtin = {READ_ARTIFACT: READ_ARTIFACT_SPEC}
    consumers = await CallConsumers(bus, handler.on_call, settings, lambda: builtin | catalogue.live(), runners).start()
    discoveries = [*(kind.discovery for kind in kinds), DeclaredTools(bus, changed)]
    for discovery in discoveries:
        await discovery.start()

    def announcements() -> list[Announcement]:
        """What the tools file declares, what an operator has declared, and what instances announce now."""
        return [*declared, *(one for discovery in discoveries for one in discovery.announcements())]

    await bus.until_answered(lambda: consumers.open(READ_ARTIFACT_SPEC))
    writer = await CatalogueWriter(
        bus,
        discoveries,
        changed,
        declared,
        lambda announced: consumers.open(announced.spec),
        trust_tools=settings.trust_tools,
    ).start()
    checks = await ToolChecks(bus, announcements, catalogue, tools).start()
    if health is not None:
        health.checks["catalogue"] = lambda: writer.problem
    try:
        yield
    finally:
        await runners.stop()
        await checks.stop()
        await reads.stop()
        await direct_calls.stop()
        await writer.stop()
        await consumers.stop(settings.graceful_timeout_s)
        for discovery in discoveries:  # Calls that were under way had their MCP servers until here.
            await discovery.stop()
        await catalogue.stop()
