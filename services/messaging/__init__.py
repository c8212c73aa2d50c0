"""NATS: one connection per service, and reading and writing streams over it.

Knows subjects and streams, not runs or tools.
"""
