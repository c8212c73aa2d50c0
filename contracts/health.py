"""Problems in `/readyz` that a supervisor acts on."""

NOT_STORED = "NATS does not store"
"""The beginning of the problem if writes to NATS fail although the service is connected. Restart NATS once its disk has
space."""
