"""Serving tools over NATS."""

import runwire.nats_client  # noqa: F401, before anything else imports nats-py
from runwire.serving.server import main, run, serve

__all__ = ["main", "run", "serve"]
