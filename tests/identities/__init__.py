"""Identities on NATS: who may do what, tried on a real server, and what attackers try."""
