"""Recorded runs of the planner, played again: what it does and what its models are shown must stay as it was."""
