"""Protocols beside real planners' records."""
