"""Identities on NATS: who has a password, the accounts that the server is told, and the files that people are given."""
