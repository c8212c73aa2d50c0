"""The default strategy: one JSON action per turn, as text or as native tool calls."""
