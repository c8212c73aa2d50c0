"""How a run ends: the terminal facts and their payload. Pure."""
