"""One call of a tool, from its request to its outcome."""
