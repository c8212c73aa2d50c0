"""Plumbing that every service stands on, with no word of the business: bus, streams, settings, logs, health."""
