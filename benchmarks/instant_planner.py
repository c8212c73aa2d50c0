"""The planner as a real service process, but for its model: `python -m benchmarks.instant_planner`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.instant_model import InstantModel
from services.messaging.connection import Bus
from services.messaging.nats_link import run_on_nats
from services.planner.agents import load_agents
from services.planner.app import build_parts, pullers
from services.planner.effects.call_paths import DirectCalls
from services.planner.handlers import Planner
from services.planner.settings import PlannerSettings
from services.runtime.health import Health
from services.shared.tools.catalogue import Catalogue


@asynccontextmanager
async def work(bus: Bus, _health: Health) -> AsyncIterator[None]:
    """What services.planner does, without LiteLLM and without the hourly purge."""
    settings = PlannerSettings()
    catalogue = await Catalogue(bus).start()
    agents, direct_calls = load_agents(settings.agents_file), DirectCalls(bus, max_waiting=0)
    planner = Planner(build_parts(bus, settings, agents, InstantModel(), "benchmark/instant", catalogue, direct_calls))
    consumers = [await pulling.start() for pulling in pullers(bus, planner, settings)]
    try:
        yield
    finally:
        await asyncio.gather(*(pulling.stop(settings.graceful_timeout_s) for pulling in consumers))
        await catalogue.stop()


if __name__ == "__main__":
    run_on_nats("planner", PlannerSettings(), work)
