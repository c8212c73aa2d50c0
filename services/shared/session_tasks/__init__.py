"""The background tasks of a session: their state, its fold, and its views. Pure: no clock, no await."""
