"""Serving tools over NATS."""

from runwire.serving.server import main, serve

__all__ = ["main", "serve"]
