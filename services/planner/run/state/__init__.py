"""The state of a run: what its log adds up to. Pure."""
