"""Deleting artifacts: `deletions` one by one, `sweeps` those that are due, `orphans` objects that nothing knows."""
