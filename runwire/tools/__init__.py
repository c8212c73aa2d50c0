"""Tools in Python: what `@tool` makes of a function, and the context of a call."""

from runwire.tools.context import ToolContext
from runwire.tools.decorator import Tool, tool
from runwire.tools.responses import ToolResponse

__all__ = ["Tool", "ToolContext", "ToolResponse", "tool"]
