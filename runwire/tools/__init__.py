"""Tools: what `@tool` makes of a function, and what the function gets to know of a call."""

from runwire.tools.context import ToolContext, ToolError
from runwire.tools.decorator import Tool, tool
from runwire.tools.signatures import Undescribable

__all__ = ["Tool", "ToolContext", "ToolError", "Undescribable", "tool"]
