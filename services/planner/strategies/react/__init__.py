"""The default dialect: one JSON action per turn, as text or as native tool calls."""
