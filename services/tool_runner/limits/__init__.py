"""How many calls of a tool run at once, over both paths and all instances of tool_runner."""
