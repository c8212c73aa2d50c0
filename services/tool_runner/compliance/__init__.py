"""The check of a tool against the standard form of results, for its author: `runwire tools check`."""
