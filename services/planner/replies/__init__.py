"""What a model may write: strict JSON, actions, and the part of a reply that may be shown while it streams."""
