"""What a supervisor acts on: a problem in `/readyz`, and an exit code."""

NOT_STORED = "NATS does not store"
"""The beginning of the problem if writes to NATS fail although the service is connected. Restart NATS once its disk has
space."""
EXIT_WRONG_SETTINGS = 78
"""The exit code of a service whose settings, agents file or tools file are wrong: another start would end the same way.
The last line on stderr says what is wrong. (EX_CONFIG of `sysexits.h`.)"""
