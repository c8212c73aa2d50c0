"""Run the gateway: `python -m services.gateway`."""

from services.runtime.http_server import run_with_http
from services.runtime.service import configure_logging
from services.runtime.settings import misconfigured, read_settings
from services.shared.runs.pages.registry import InvalidPages

from .app import build_server
from .errors import StartRefused
from .settings import GatewaySettings


def main() -> None:
    """Compose and run it; what it refuses, as an address that others reach without keys, ends it with one sentence."""
    settings = read_settings(GatewaySettings)
    configure_logging("gateway", settings)
    try:
        server = build_server(settings)
    except (StartRefused, InvalidPages) as refusal:
        raise misconfigured(str(refusal)) from None
    run_with_http(server)


if __name__ == "__main__":
    main()
