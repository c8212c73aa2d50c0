"""Run the artifact store: `python -m services.artifact_store`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.messaging.connection import Bus
from services.messaging.nats_link import run_on_nats
from services.runtime.health import Health
from services.runtime.settings import read_settings

from .app import running
from .settings import ArtifactStoreSettings


def main() -> None:
    """Run the store until SIGTERM or SIGINT."""
    settings = read_settings(ArtifactStoreSettings)

    @asynccontextmanager
    async def work(bus: Bus, health: Health) -> AsyncIterator[None]:
        async with running(settings, bus, health):
            yield

    run_on_nats("artifact_store", settings, work)


if __name__ == "__main__":
    main()
