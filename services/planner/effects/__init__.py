"""Executes what the rules command: model calls, chunks, calls of tools, timers, the index."""
