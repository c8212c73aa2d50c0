"""Run the tool runner: `python -m services.tool_runner`."""

from services.messaging.nats_link import run_on_nats
from services.runtime.settings import misconfigured, read_settings

from .app import running
from .discovery.file import InvalidToolsFile, read_tools_file
from .settings import ToolRunnerSettings
from .transports.mcp.config import InvalidServersFile, read_servers_file


def main() -> None:
    """Run the tool runner. An invalid file ends it with one sentence, even without NATS."""
    settings = read_settings(ToolRunnerSettings)
    try:
        declared = read_tools_file(settings.tools_file) if settings.tools_file is not None else []
    except InvalidToolsFile as error:
        raise misconfigured(f"wrong tools file: {error}") from None
    try:
        servers = read_servers_file(settings.mcp_servers_file) if settings.mcp_servers_file is not None else []
    except InvalidServersFile as error:
        raise misconfigured(f"wrong file of MCP servers: {error}") from None
    run_on_nats("tool_runner", settings, lambda bus, health: running(bus, settings, declared, health, servers))


if __name__ == "__main__":
    main()
