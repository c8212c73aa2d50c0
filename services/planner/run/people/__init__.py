"""What people do to a run: inputs, pauses and their decisions. Pure."""
