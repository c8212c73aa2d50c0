"""How a tool is reached."""
