"""Background tasks and groups of a session: a machine, what it commands, and its reports. Pure."""
