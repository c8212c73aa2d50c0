"""The launcher: everything on one machine, as supervised processes."""
