"""One call of a tool, from its dispatch to its outcome."""
