"""Background tasks of a session: what messages lead to, and what follows. Pure."""
