"""Transports to tool services."""
