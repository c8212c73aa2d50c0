"""Runwire's SDK: `tool`, `ToolContext` and `ToolResponse` to write tools, `Client` to start and follow runs.

`runwire.events`, `runwire.errors` and `runwire.testing` are public too. docs/sdk.md lists what stays stable.
"""

from typing import TYPE_CHECKING

from runwire.errors import RunwireError, ToolError

if TYPE_CHECKING:
    from runwire.client import Client
    from runwire.tools import Tool, ToolContext, ToolResponse, tool

__all__ = ["Client", "RunwireError", "Tool", "ToolContext", "ToolError", "ToolResponse", "tool"]


if not TYPE_CHECKING:  # With `__getattr__` in sight a type checker would accept any name.

    def __getattr__(name: str) -> object:
        """Load each name when it is first used: a tool needs no HTTP library, the launcher no pydantic."""
        if name == "Client":
            from runwire.client import Client  # noqa: PLC0415, see above

            return Client
        if name in __all__:
            from runwire import tools  # noqa: PLC0415, see above

            return getattr(tools, name)
        raise AttributeError(f"module 'runwire' has no attribute {name!r}")
