"""The command line `runwire`."""

from runwire.cli.app import main

__all__ = ["main"]
