"""The artifact store, as the other services see it."""
