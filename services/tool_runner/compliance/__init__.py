"""The check of a tool against the canonical result, for its author: `runwire tools check`."""
