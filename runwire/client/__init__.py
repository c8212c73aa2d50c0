"""The client of a gateway."""

from runwire.client.client import Client, RunStream

__all__ = ["Client", "RunStream"]
