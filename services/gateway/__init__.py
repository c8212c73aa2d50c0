"""The HTTP edge: checks requests, writes them to runs and sessions, streams events, serves artifacts and tables."""
