"""Sessions, with their background tasks and groups."""
