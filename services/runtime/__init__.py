"""Plumbing that every service shares. No business word in here: it knows subjects and streams, not runs."""
