"""The command line `runwire`."""

from runwire.cli.entry_point import main

__all__ = ["main"]
