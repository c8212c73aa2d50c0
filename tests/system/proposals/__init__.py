"""Proposals for a table, in a storm."""
