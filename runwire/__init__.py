"""What outsiders import: the tool SDK, the client and the command line; it imports `contracts` and nothing of the services."""

from typing import TYPE_CHECKING, Any

from runwire.tools import Tool, ToolContext, ToolError, tool

if TYPE_CHECKING:
    from runwire.client import Client
    from runwire.errors import RunwireError

__all__ = ["Client", "RunwireError", "Tool", "ToolContext", "ToolError", "tool"]


def __getattr__(name: str) -> Any:
    """Load the client only where it is used: a tool needs no HTTP library."""
    if name == "Client":
        from runwire.client import Client  # noqa: PLC0415, see above

        return Client
    if name == "RunwireError":
        from runwire.errors import RunwireError  # noqa: PLC0415, see above

        return RunwireError
    raise AttributeError(f"module 'runwire' has no attribute {name!r}")
