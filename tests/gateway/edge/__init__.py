"""The gateway over real HTTP and a real nats-server."""
