"""Executes what the rules command: model calls with their chunks and images, calls of tools, timers, the index."""
