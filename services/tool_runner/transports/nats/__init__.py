"""Calls over NATS."""
