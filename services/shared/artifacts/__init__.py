"""The artifact store, as the other services use it."""
