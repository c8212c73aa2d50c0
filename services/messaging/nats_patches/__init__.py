"""Replacements of slow private functions of nats-py, until it has faster ones."""
