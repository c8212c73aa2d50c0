"""Runs: accept them, read them, list them, change them."""
