"""Artifacts of a call: stored from its result, read for its arguments, their images cleaned."""
