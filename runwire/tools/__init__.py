"""Tools in Python: what `@tool` makes of a function, the context of a call, and results that are named artifacts."""

from runwire.tools.context import ToolContext
from runwire.tools.decorator import Tool, tool
from runwire.tools.responses import ToolResponse

__all__ = ["Tool", "ToolContext", "ToolResponse", "tool"]
