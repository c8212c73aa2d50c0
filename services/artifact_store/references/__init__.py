"""Entries in the KV bucket: the reference of each artifact, and what the keys of tools name."""
