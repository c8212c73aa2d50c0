"""Serving tools over NATS."""

from runwire.serving.server import main, run, serve

__all__ = ["main", "run", "serve"]
