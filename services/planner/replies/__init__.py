"""Reads what models write: strict JSON, actions, and the part of a reply that may be streamed to listeners."""
