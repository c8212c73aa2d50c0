"""Words of `/readyz` that a supervisor acts on."""

NOT_STORED = "NATS does not store"
"""How the problem begins of a service whose writes to NATS fail although the connection stands. NATS is to be started
again once there is room on its disk."""
