"""A service as a process: settings, logs, health, HTTP, background tasks.

Knows neither NATS subjects nor runs and tools.
"""
