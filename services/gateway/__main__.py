"""Run the gateway: `python -m services.gateway`."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.runtime.bus import Bus
from services.runtime.catalogue import Catalogue
from services.runtime.front import run_front
from services.runtime.health import Health
from services.runtime.service import Broker

from .app import build_app
from .errors import StartRefused
from .settings import GatewaySettings


def main() -> None:
    """Compose and run it; an address that others reach and no keys is refused with one sentence."""
    settings = GatewaySettings()
    health = Health(Bus("gateway", settings))
    catalogue = Catalogue(health.bus)
    try:
        app = build_app(settings, health.bus, catalogue.live)
    except StartRefused as refusal:
        sys.exit(str(refusal))
    health.on_stop.append(app.state.gateway.streams.close)

    @asynccontextmanager
    async def work(_bus: Bus, _broker: Broker, _health: Health) -> AsyncIterator[None]:
        await catalogue.start()
        try:
            yield
        finally:
            await catalogue.stop()

    run_front("gateway", settings, work, app, health, host=settings.host, port=settings.port)


if __name__ == "__main__":
    main()
