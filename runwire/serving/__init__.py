"""Serving tools over NATS."""

from runwire.serving.loading import authors_trace, remarks
from runwire.serving.server import main, run, serve, tools_of

__all__ = ["authors_trace", "main", "remarks", "run", "serve", "tools_of"]
