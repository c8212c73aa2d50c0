"""Run the artifact store: `python -m services.artifact_store`."""

from services.messaging.nats_link import run_on_nats
from services.runtime.settings import read_settings

from .app import running
from .settings import ArtifactStoreSettings


def main() -> None:
    """Run the store until SIGTERM or SIGINT."""
    settings = read_settings(ArtifactStoreSettings)
    run_on_nats("artifact_store", settings, lambda bus, health: running(settings, bus, health))


if __name__ == "__main__":
    main()
