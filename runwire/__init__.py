"""What outsiders import: the tool SDK, the client and the command line; it imports `contracts` and nothing of the services."""

from .tools import Tool, ToolContext, ToolError, tool

__all__ = ["Tool", "ToolContext", "ToolError", "tool"]
